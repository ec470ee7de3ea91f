"""The command line ``rarefl``: look at data, check a run config, run a grid of them, and report on them.

It needs the packages of a clone beside this one, among them ``datasets``; another package of that name that
is installed must not be found first. So nothing of ours is imported before :func:`main` has put the project's
root first on the path.
"""

import hashlib
import json
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
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent

app = typer.Typer(
    help="Federated learning on data whose rare labels matter.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)

Preset = Annotated[Path, typer.Argument(help="Run-config file, such as conf/NAME.toml.", show_default=False)]


@app.command()
def check(
    preset: Preset,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A value in place of the preset's.")
    ] = None,
) -> None:
    """Check a run config (conf/NAME.toml) and print every key of it, with where its value comes from."""
    from federation.config.run_config import default_run_config
    from federation.errors import ConfigError
    from federation.runs.folders import DEFAULT_PARENT, absolute_path
    from rarefl import sweep_plan

    with _errors_in_one_line():
        given = sweep_plan.parse_settings(settings or [])
        for key, values in given.items():
            if len(values) > 1:
                raise ConfigError(f"--set gives {key} {len(values)} values; a check takes one")
        config = sweep_plan.merge(preset, {key: values[0] for key, values in given.items()})
        absolute_path("output.dir", config.output.dir or DEFAULT_PARENT)
        if config.output.resume:
            absolute_path("output.resume", config.output.resume)
        in_preset = sweep_plan.read_preset(preset)
        defaults = default_run_config()
    table = Table("key", "value", "from")
    for key in defaults:
        source = "--set" if key in given else preset.name if key in in_preset else "default"
        value = json.dumps(config.flat()[key], ensure_ascii=False)
        table.add_row(key, value, source, style="dim" if source == "default" else None)
    Console(markup=False, highlight=False).print(table)


@app.command()
def sweep(
    preset: Preset,
    out: Annotated[Path, typer.Option(help="Folder of the results; a later call goes on in it.")],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE,...", help="A key to vary; several make a grid."),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(help="Such as 1-3 or 1,4,7; by default the preset's seed.", show_default=False),
    ] = None,
    federation_config: Annotated[
        str,
        typer.Option(
            help="Passed on to flwr run, such as 'client-resources-num-cpus=2 init-args-num-cpus=8'."
        ),
    ] = "",
) -> None:
    """Run a grid of run configs around a preset (conf/NAME.toml) with several seeds, and tabulate results.

    Finished runs are skipped and unfinished ones go on, so the same command serves after Ctrl-C or a failure.
    """
    from rarefl import sweep as sweeping
    from rarefl.superlink import LocalSuperLink
    from rarefl.sweep_plan import plan_runs

    console = _console()
    with _errors_in_one_line(), _signals_like_ctrl_c():
        runs = plan_runs(preset, settings or [], seeds, out)
        folder = runs[0].out
        # Not inside --out: Flower would pack what lies there if --out is in the project.
        home = platformdirs.user_cache_path("rarefl") / hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
        outcome = sweeping.run_sweep(
            runs, lambda: LocalSuperLink(home, folder / "superlink.log"), console, federation_config
        )
        shutil.rmtree(home, ignore_errors=True)
        options: list[tuple[str, str | None]] = [("--set", setting) for setting in settings or []]
        options += [("--seeds", seeds), ("--out", str(out)), ("--federation-config", federation_config)]
        words = [word for option, value in options if value for word in (option, value)]
        command = shlex.join(["rarefl", "sweep", str(preset), *words])
        sweeping.write_results(outcome, runs, command, console)
    if outcome.interrupted:
        raise typer.Exit(130)
    if outcome.failed:
        raise typer.Exit(1)


@app.command()
def data(
    name: Annotated[
        str | None,
        typer.Argument(help="Data set, as in data.name; by default the run config's.", show_default=False),
    ] = None,
    root: Annotated[
        Path | None, typer.Option(help="Folder of the data set, in place of data.root.", show_default=False)
    ] = None,
    run_config: Annotated[
        Path | None,
        typer.Option(
            help="Run-config file, such as conf/NAME.toml; by default the defaults.", show_default=False
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the pictures, or FILE.png to name them by.")] = Path(),
) -> None:
    """Print a data set's card and what a run would train on, and draw its partition and some images."""
    from rarefl.data_card import data_config, show_data

    with _errors_in_one_line():
        settings = "the default settings" if run_config is None else str(run_config)
        show_data(data_config(name, root, run_config), settings, out.expanduser(), _console())


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
def _errors_in_one_line() -> Iterator[None]:
    from datasets.errors import DataError
    from federation.errors import RareflError

    try:
        yield
    except (RareflError, DataError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None


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
