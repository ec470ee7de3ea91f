"""The command line ``rarefl``: look at data, check a run config, run a grid of them, and report on them.

It needs the packages of a clone beside this one, among them ``datasets``; another package of that name that
is installed must not be found first. So nothing of ours is imported before :func:`main` has put the project's
root first on the path.
"""

import hashlib
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import platformdirs
import typer
from rich.console import Console

ROOT = Path(__file__).resolve().parent.parent

app = typer.Typer(
    help="Federated learning on data whose rare labels matter.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)

SETTINGS_ERROR = 2
"""Exit status when settings are wrong, and nothing was started; 1 is for what went wrong later."""

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[PRESET] [KEY=VALUE]...",
        help="A run-config file or the name of one in conf/, and values in place of its own.",
        show_default=False,
    ),
]
More = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", hidden=True)]
FederationConfig = Annotated[
    str,
    typer.Option(
        help="KEY=VALUE pairs for flwr run in place of what is fitted to this machine, such as "
        "'client-resources-num-gpus=0.25'.",
        show_default=False,
    ),
]


@app.command()
def run(
    words: Words = None,
    resume: Annotated[
        Path | None,
        typer.Option(help="Go on with the run in this folder, by its own settings.", show_default=False),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Tell what the run would do, and start nothing.")
    ] = False,
    federation: Annotated[
        str,
        typer.Option(
            help="Name of a SuperLink in Flower's config.toml, to run on real SuperNodes.", show_default=False
        ),
    ] = "",
    federation_config: FederationConfig = "",
) -> None:
    """Run an experiment: check its settings, simulate it on this machine, and show its results.

    PRESET is a run-config file or a name that `rarefl list presets` gives; without one it is a small
    experiment on handwritten digits. KEY=VALUE, such as query.name=entropy, stands in place of its value.

    Exits with 0 when the run finished, 1 when it failed, 2 when its settings are wrong, and 130 after Ctrl-C,
    which leaves a run that can go on.
    """
    from federation.errors import ConfigError
    from rarefl import machine, settings
    from rarefl.checks import check_data, check_files_and_packages, check_folder, forget_data
    from rarefl.dry_run import show_dry_run
    from rarefl.run import check_connection, run_here, run_there

    console = _console()
    with _errors_in_one_line(status=SETTINGS_ERROR):
        given = settings.read_words(words or [])
        if resume:
            given = settings.resumed(resume, given)
        config = given.config()
        if federation and dry_run:
            raise ConfigError("--dry-run tells of a run on this machine; leave --federation out")
        if federation:
            check_connection(federation)
        else:
            check_files_and_packages(config)
            check_folder(config)
            this = machine.Machine.this()
            federation_config = machine.federation_config(federation_config, config.data.clients, this)
            data = check_data(config)
    if dry_run:
        with _errors_in_one_line():
            show_dry_run(config, given, data, this, federation_config, console)
        return
    with _errors_in_one_line(), _signals_like_ctrl_c():
        if federation:
            ended = run_there(config, given.name, federation, federation_config, console)
        else:
            del data
            forget_data()
            ended = run_here(config, given.name, federation_config, console)
    if ended.error:
        typer.echo(f"error: {ended.error}", err=True)
    raise typer.Exit(ended.status)


@app.command(name="list")
def list_(
    topic: Annotated[
        str | None,
        typer.Argument(help="strategies, queries, data, models, presets or runs.", show_default=False),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="[DIR]", help="For runs: where they lie.", show_default=False),
    ] = None,
) -> None:
    """List what there is to choose from, or the runs that were made.

    TOPIC is strategies, queries, data, models, presets or runs; without one it lists the topics. DIR is the
    folder of runs to look into.
    """
    from rarefl import listing

    with _errors_in_one_line():
        table = listing.list_topic(topic, folder) if topic else listing.list_topics()
    # One line each where a program reads it; a terminal folds the last column.
    Console(markup=False, highlight=False, width=None if sys.stdout.isatty() else 1000).print(table)


@app.command()
def check(words: Words = None, more: More = None) -> None:
    """Check settings as a run does, and print every key of them, with where its value comes from."""
    from federation.config.unused import unused_keys
    from rarefl import settings
    from rarefl.checks import check_files_and_packages, check_folder
    from rarefl.settings_table import settings_table

    with _errors_in_one_line(status=SETTINGS_ERROR):
        given = settings.read_words(words or [], more or [])
        config = given.config()
        check_files_and_packages(config)
        check_folder(config)
        unused = unused_keys(config)
    _console().print(settings_table(config, given))
    for sentence in unused:
        _console().print(f"warning: {sentence}", soft_wrap=True)


@app.command()
def sweep(
    out: Annotated[Path, typer.Option(help="Folder of the results; a later call goes on in it.")],
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PRESET] [KEY=VALUE,VALUE...]...",
            help="A run-config file or the name of one in conf/, and keys to vary; several make a grid.",
            show_default=False,
        ),
    ] = None,
    more: More = None,
    seeds: Annotated[
        str | None,
        typer.Option(help="Such as 1-3 or 1,4,7; by default the preset's seed.", show_default=False),
    ] = None,
    federation_config: FederationConfig = "",
) -> None:
    """Run a grid of run configs around a preset with several seeds, and tabulate results.

    Finished runs are skipped and unfinished ones go on, so the same command serves after Ctrl-C or a failure.
    """
    from rarefl import settings
    from rarefl import sweep as sweeping
    from rarefl.checks import check_data_of_all, check_files_and_packages, forget_data
    from rarefl.superlink import LocalSuperLink
    from rarefl.sweep_plan import plan_runs

    console = _console()
    with _errors_in_one_line(status=SETTINGS_ERROR):
        runs = plan_runs(settings.read_words(words or [], more or []), seeds, out)
        for planned in runs:
            check_files_and_packages(planned.config)
        check_data_of_all([run.config for run in runs])
        forget_data()
    with _errors_in_one_line(), _signals_like_ctrl_c():
        folder = runs[0].out
        # Not inside --out: Flower would pack what lies there if --out is in the project.
        home = platformdirs.user_cache_path("rarefl") / hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
        outcome = sweeping.run_sweep(
            runs, lambda: LocalSuperLink(home, folder / "superlink.log"), console, federation_config
        )
        shutil.rmtree(home, ignore_errors=True)
        options = [("--seeds", seeds), ("--out", str(out)), ("--federation-config", federation_config)]
        typed = [word for option, value in options if value for word in (option, value)]
        typed = [*(words or []), *(word for setting in more or [] for word in ("--set", setting)), *typed]
        command = shlex.join(["rarefl", "sweep", *typed])
        sweeping.write_results(outcome, runs, command, console)
    if outcome.interrupted:
        raise typer.Exit(130)
    if outcome.failed:
        raise typer.Exit(1)


@app.command()
def data(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[DATASET] [PRESET] [KEY=VALUE]...",
            help="A data set, as in data.name, or a preset, and values in place of its own.",
            show_default=False,
        ),
    ] = None,
    root: Annotated[
        Path | None, typer.Option(help="Folder of the data set, in place of data.root.", show_default=False)
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the pictures, or FILE.png to name them by.")] = Path(),
) -> None:
    """Print a data set's card and what a run would train on, and draw its partition and some images."""
    from rarefl.data_card import data_settings, show_data

    with _errors_in_one_line():
        given = data_settings(words or [], root)
        settings = "the default settings" if given.preset is None else str(given.preset)
        show_data(given.config(), settings, out.expanduser(), _console())


def _console() -> Console:
    return Console(markup=False, highlight=False, width=None if sys.stdout.isatty() else 160)


@app.command()
def report(
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="Folders with runs, at any depth, or results.csv of sweeps.",
            metavar="DIR...",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the report; by default DIR/report.", show_default=False),
    ] = None,
) -> None:
    """Compare the methods of finished runs: tables, tests, pictures, and a page to read offline.

    Runs of different data or protocols stand in separate sections.
    """
    from rarefl.report.report import build
    from rarefl.report.writing import PAGE, write

    console = Console(markup=False, highlight=False, soft_wrap=True)
    folder = out or (paths[0] if paths[0].is_dir() else paths[0].parent) / "report"
    with _errors_in_one_line():
        built = build(paths)
        write(built, folder)
    for part in built.parts:
        console.print(f"{part.title}: {part.summary}")
        for note in part.notes:
            console.print(f"    {note}")
    for warning in built.warnings:
        console.print(f"warning: {warning}")
    for name, reason in built.left_out.items():
        console.print(f"not in the report: {name}: {reason}")
    console.print(f"wrote {folder / PAGE}, report.md, tables and pictures")


@contextmanager
def _errors_in_one_line(status: int = 1) -> Iterator[None]:
    """End with this exit status on what a user can cause, or with 2 where settings are at fault."""
    from federation.errors import USER_ERRORS, ConfigError, RunFolderError

    try:
        yield
    except USER_ERRORS as error:
        typer.echo(f"error: {error}", err=True)
        wrong_settings = isinstance(error, ConfigError | RunFolderError)
        raise typer.Exit(SETTINGS_ERROR if wrong_settings else status) from None


@contextmanager
def _signals_like_ctrl_c() -> Iterator[None]:
    """Stop the run and the SuperLink as well when we are terminated or the terminal is closed."""

    def interrupt(number: int, frame: object) -> NoReturn:
        raise KeyboardInterrupt

    names = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    # nohup ignores the hang-up; that stays so.
    numbers = [
        number for name in names if signal.getsignal(number := getattr(signal, name)) != signal.SIG_IGN
    ]
    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def main() -> None:
    """Start the command line; what the script ``rarefl`` calls."""
    if not ((ROOT / "pyproject.toml").is_file() and (ROOT / "federation").is_dir()):
        sys.exit(
            "rarefl: this command works from a clone of the project (pip install -e .); "
            f"{ROOT} has only the parts that other apps import"
        )
    sys.path.insert(0, str(ROOT))
    app(prog_name="rarefl")
