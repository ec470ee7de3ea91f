"""What ``rarefl run`` does with settings that are checked: one run on a SuperLink, to its end."""

import os
import shlex
import tomllib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from datasets.names import unknown
from fairfal_app.config import FairFALConfig
from federation.errors import ConfigError
from federation.runs.folders import DEFAULT_PARENT, absolute_path, cannot_write, new_folder
from rarefl.flower import FlowerCommands
from rarefl.launch import Runner, can_go_on, launch
from rarefl.superlink import LocalSuperLink

LOG = "flower.log"
"""File in the folder of a run that has all that Flower and Ray printed."""


@dataclass(frozen=True)
class RunFinished:
    """How ``rarefl run`` ends: its exit status, and the line of an error, if any."""

    status: int
    error: str = ""


def run_here(
    config: FairFALConfig,
    name: str,
    federation: str,
    console: Console,
    open_runner: Callable[[Path], AbstractContextManager[Runner]] | None = None,
) -> RunFinished:
    """Simulate a run on this machine, with a SuperLink of its own that ends with it.

    Parameters
    ----------
    config
        The checked run config; without a folder it gets a new one, named by the time, ``name`` and the seed.
    federation
        ``key=value`` pairs as ``flwr run --federation-config`` takes them.
    console
        Where the run's own lines go.
    open_runner
        Makes what starts the run from the file of its log; a :class:`LocalSuperLink` by default.

    Returns
    -------
    RunFinished
        Status 0 when the run finished, 1 when it failed, 130 after Ctrl-C.

    Raises
    ------
    RunFolderError
        The folder cannot be written.
    SuperLinkError
        The SuperLink does not start or does not answer.
    """
    say = _teller(console)
    folder = _folder(config, name)
    log = folder / LOG
    if not config.output.resume:
        config = config.model_copy(update={"output": config.output.model_copy(update={"dir": str(folder)})})
    say(f"starting Flower, whose output goes to {log}")
    again = shlex.join(["rarefl", "run", "--resume", str(folder)])
    try:
        with (open_runner or _local)(log) as runner:
            ended = launch(runner, config.model_dump(by_alias=True), federation, folder, log, say)
    except KeyboardInterrupt:
        if can_go_on(folder):
            say(f"stopped; this goes on from the last checkpoint: {again}")
        else:
            say("stopped before the run had begun; the same command starts it anew")
        return RunFinished(130)
    if ended.finished:
        return RunFinished(0)
    way_out = f"; `{again}` goes on from its last checkpoint" if can_go_on(folder) else ""
    return RunFinished(1, f"{ended.reason}; all that Flower and Ray said is in {log}{way_out}")


def run_there(
    config: FairFALConfig,
    name: str,
    connection: str,
    federation: str,
    console: Console,
    runner: Runner | None = None,
) -> RunFinished:
    """Run on a SuperLink that is there already: a connection in the ``config.toml`` of the user's FLWR_HOME.

    The folder of the run lies on that SuperLink's machine; the log of what came from there, on this one.
    Parameters, result and errors are those of :func:`run_here`.
    """
    say = _teller(console)
    log = _new_folder(f"{name}-seed{config.seed}-{connection}") / LOG
    say(f"starting on {connection}; all that comes from there goes to {log}")
    tables, runner = config.model_dump(by_alias=True), runner or FlowerCommands(connection)
    try:
        ended = launch(runner, tables, federation, None, log, say)
    except KeyboardInterrupt:
        say(
            "stopped; to go on from the last checkpoint, give the same command with output.resume=FOLDER, "
            "the folder that the run told at its start"
        )
        return RunFinished(130)
    return RunFinished(0) if ended.finished else RunFinished(1, f"{ended.reason}; all that came is in {log}")


def check_connection(name: str) -> None:
    """Raise ConfigError when Flower's ``config.toml`` has no SuperLink of this name."""
    home = Path(os.environ.get("FLWR_HOME") or Path.home() / ".flwr")
    file = home / "config.toml"
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8")).get("superlink", {})
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"--federation {name}: cannot read {file} ({error}); it names the SuperLinks that there are: "
            f'[superlink.{name}] with address = "HOST:PORT"'
        ) from None
    names = [key for key, table in tables.items() if isinstance(table, dict)]
    if name not in names:
        raise ConfigError(f"--federation: {unknown(f'SuperLink in {file} called', name, names)}")


def _teller(console: Console) -> Callable[[str], None]:
    """Return what prints a line as it is, so that a path in it can be copied."""
    return lambda line: console.print(line, soft_wrap=True, markup=False, highlight=False)


def _local(log: Path) -> AbstractContextManager[Runner]:
    return LocalSuperLink(log_file=log)


def _folder(config: FairFALConfig, name: str) -> Path:
    """Return the folder of the run, which is there then, for its log to begin before it does."""
    output = config.output
    if output.resume:
        return absolute_path("output.resume", output.resume)
    if not output.dir:
        return _new_folder(f"{name}-seed{config.seed}")
    path = absolute_path("output.dir", output.dir)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write("output.dir", path, error) from error
    return path


def _new_folder(label: str) -> Path:
    parent = absolute_path("output.dir", DEFAULT_PARENT)
    try:
        return new_folder(parent, label)
    except OSError as error:
        raise cannot_write("output.dir", parent, error) from error
