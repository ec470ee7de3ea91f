"""One run, started and followed to its end; what ``rarefl run`` and ``rarefl sweep`` share."""

import re
import tempfile
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import tomli_w

from federation.runs.run_folder import CHECKPOINTS, CONFIG, RUN_KEY
from rarefl.checks import read_summary
from rarefl.flower import RunOutcome
from rarefl.settings import PROJECT_ROOT

_LONGEST_REASON = 500
_FAILURE = "the run failed: "


class Runner(Protocol):
    """What starts a run and waits for it: a :class:`rarefl.flower.FlowerCommands`."""

    def submit(
        self,
        app_dir: Path,
        run_config_file: Path | None = None,
        federation_config: str = "",
        on_line: Callable[[str], None] | None = None,
        on_own_line: Callable[[str], None] | None = None,
    ) -> RunOutcome:
        """Run an app and wait for its end."""


class Ended(NamedTuple):
    """How a run ended: finished, with what its summary holds if it can be read here, or why not."""

    finished: bool
    summary: dict[str, Any]
    reason: str


def launch(
    runner: Runner,
    config: Mapping[str, Any],
    federation: str,
    folder: Path | None,
    log_file: Path,
    tell: Callable[[str], None],
) -> Ended:
    """Run and wait for the end.

    Parameters
    ----------
    runner
        What starts it.
    config
        The whole run config, in tables.
    federation
        ``key=value`` pairs as ``flwr run --federation-config`` takes them.
    folder
        Folder of the run, whose summary decides how it ended, whatever Flower says; None where it lies on
        another machine, and Flower's word must do.
    log_file
        File to which every line of the run and its engine is added.
    tell
        Called with each line that the run itself has to tell, but for that on its failure, which is in
        ``Ended.reason``.

    Raises
    ------
    KeyboardInterrupt
        Passed on after the run was stopped.
    """
    failed = False

    def on_own_line(line: str) -> None:
        nonlocal failed
        failed = failed or line.startswith(_FAILURE)
        if not failed:
            tell(line)

    with tempfile.TemporaryDirectory(prefix="rarefl-") as place, log_file.open("a", encoding="utf-8") as log:

        def on_line(line: str) -> None:
            log.write(line + "\n")
            log.flush()

        on_line(f"--- {datetime.now().astimezone().isoformat(timespec='seconds')} {federation}")
        file = Path(place) / CONFIG
        file.write_text(tomli_w.dumps(config), encoding="utf-8")
        outcome = runner.submit(PROJECT_ROOT, file, federation, on_line, on_own_line)
    if folder is None:
        return Ended(outcome.completed, {}, _reason(outcome.details, outcome.status))
    summary = read_summary(folder) or {}
    finished = summary.get("status") == "finished"
    return Ended(finished, summary, _reason(summary.get("reason") or outcome.details, outcome.status))


def can_go_on(folder: Path) -> bool:
    """Return whether the folder holds a run that was begun, with what it takes to go on."""
    return (folder / CONFIG).is_file() and (folder / CHECKPOINTS / RUN_KEY).is_file()


def _reason(told: str, status: str) -> str:
    """Return why a run did not finish, in one line."""
    reason = re.sub(r"\s+", " ", told).strip()[:_LONGEST_REASON]
    if reason in ("", "N/A"):
        reason = "it ended without a result"
    return f"{reason} [{status}]"
