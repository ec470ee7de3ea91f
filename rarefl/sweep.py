"""A sweep: planned runs, one after the other through ``flwr run``, and what they found."""

import json
import re
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import filelock
import tomli_w
from rich.console import Console

from federation.config.run_config import flatten
from federation.errors import RareflError
from federation.runs.run_folder import CHECKPOINTS, CONFIG, RUN_KEY
from rarefl.superlink import RunOutcome
from rarefl.sweep_plan import PROJECT_ROOT, PlannedRun, federation_config
from rarefl.sweep_results import grid_table, markdown_table, result_rows, rich_table

_PROGRESS = re.compile(r"\[[a-z ]+ \d+/\d+(?:, [\d.]+ % labelled)?(?:, [a-z ]+ \d+/\d+)*\].*")
_LONGEST_REASON = 500


class SweepError(RareflError):
    """The folder of a sweep cannot be used as it is."""


class Runner(Protocol):
    """What starts a run and waits for it: a :class:`rarefl.superlink.LocalSuperLink`."""

    def submit(
        self,
        app_dir: Path,
        run_config_file: Path | None = None,
        federation_config: str = "",
        on_line: Callable[[str], None] | None = None,
    ) -> RunOutcome:
        """Run an app and wait for its end."""


@dataclass
class SweepOutcome:
    """How a sweep ended: finished runs with their summaries, and the reasons of those that failed."""

    finished: list[tuple[PlannedRun, dict[str, Any]]] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False


def progress_line(line: str) -> str | None:
    """Return the part of a log line that tells of a round, such as ``[round 3/20] accuracy 0.81``."""
    match = _PROGRESS.search(line)
    return match[0] if match else None


def run_sweep(
    runs: Sequence[PlannedRun],
    open_runner: Callable[[], AbstractContextManager[Runner]],
    console: Console,
    extra_federation_config: str = "",
) -> SweepOutcome:
    """Run what is not finished yet; a failed run does not stop the others, Ctrl-C stops cleanly.

    Parameters
    ----------
    runs
        Runs of one sweep, at least one, with the same ``out``.
    open_runner
        Called once, when there is something to run.
    console
        Where progress goes.
    extra_federation_config
        ``key=value`` pairs for ``flwr run --federation-config``, beside ``num-supernodes``.

    Raises
    ------
    ConfigError
        When the federation config is wrong.
    SweepError
        Before anything runs, when a run's folder holds another run config, or another sweep works in ``out``.
    """
    settings = [federation_config(extra_federation_config, run.config.data.clients) for run in runs]
    out = runs[0].out
    out.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(out / ".sweep.lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise SweepError(f"another sweep works in {out}; wait for its end or choose another --out") from None
    with lock:
        for run in runs:
            _refuse_other_config(run)
        outcome = SweepOutcome(finished=[(run, summary) for run in runs if (summary := _finished(run))])
        skipped = {run.name for run, _ in outcome.finished}
        waiting = [pair for pair in zip(runs, settings, strict=True) if pair[0].name not in skipped]
        _say(console, f"{len(runs)} runs in {out}: {len(skipped)} finished before, {len(waiting)} to do")
        if waiting:
            try:
                with open_runner() as runner:
                    _run_all(waiting, runner, console, outcome)
            except KeyboardInterrupt:
                outcome.interrupted = True
                _say(console, "stopped; the same command goes on from here")
        order = [run.name for run in runs]
        outcome.finished.sort(key=lambda pair: order.index(pair[0].name))
    return outcome


def write_results(outcome: SweepOutcome, runs: Sequence[PlannedRun], command: str, console: Console) -> None:
    """Write ``results.csv`` and ``results.md`` into the sweep's folder, and print the table.

    Parameters
    ----------
    outcome
        How the sweep ended.
    runs
        All its runs.
    command
        The command line that gives this table.
    console
        Where the table goes.
    """
    out = runs[0].out
    keys = list(runs[0].varied)
    rows = result_rows(outcome.finished, keys)
    rows.to_csv(out / "results.csv", index=False)
    # A key with one value stands in the command line and needs no column.
    table = grid_table(rows, [key for key in keys if len({run.varied[key] for run in runs}) > 1])
    parts = [
        "# Results of a sweep",
        f"    {command}",
        f"{len(outcome.finished)} of {len(runs)} runs are finished. Measures are mean ± standard deviation "
        "over seeds, in percent; seconds are those of a whole run. A row per run is in `results.csv`.",
    ]
    if table:
        console.print(rich_table(table))
        parts.append(markdown_table(table))
    if outcome.failed:
        parts += ["## Failed", "\n".join(f"* `{name}`: {reason}" for name, reason in outcome.failed.items())]
    (out / "results.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    _say(console, f"wrote {out / 'results.csv'} and results.md")


def _run_all(
    waiting: Sequence[tuple[PlannedRun, str]], runner: Runner, console: Console, outcome: SweepOutcome
) -> None:
    durations = [summary["seconds"] for _, summary in outcome.finished if summary.get("seconds")]
    for place, (run, settings) in enumerate(waiting, start=1):
        label = f"[{place}/{len(waiting)}] {run.name}"
        resumed = _can_go_on(run)
        if not resumed:
            _move_aside(run, console)
        _say(console, f"{label}: {'goes on' if resumed else 'started'}")
        start = time.monotonic()
        summary, reason = _run_one(run, settings, runner, console, resumed)
        durations.append(time.monotonic() - start)
        left = timedelta(seconds=round(sum(durations) / len(durations) * (len(waiting) - place)))
        elapsed = timedelta(seconds=round(durations[-1]))
        if summary is None:
            outcome.failed[run.name] = reason
            _say(console, f"{label}: FAILED after {elapsed}, about {left} left: {reason}; see {run.log_file}")
        else:
            outcome.finished.append((run, summary))
            _say(console, f"{label}: finished in {elapsed}, about {left} left")


def _run_one(
    run: PlannedRun, settings: str, runner: Runner, console: Console, resumed: bool
) -> tuple[dict[str, Any] | None, str]:
    """Return the summary of a run, or None and why there is none."""
    config = run.config.model_dump(by_alias=True)
    if resumed:
        config["output"]["resume"] = str(run.folder)
    run.config_file.write_text(tomli_w.dumps(config), encoding="utf-8")
    with run.log_file.open("a", encoding="utf-8") as log:
        log.write(f"--- {datetime.now().astimezone().isoformat(timespec='seconds')} {settings}\n")

        def on_line(line: str) -> None:
            log.write(line + "\n")
            log.flush()
            if progress := progress_line(line):
                _say(console, f"    {progress}")

        outcome = runner.submit(PROJECT_ROOT, run.config_file, settings, on_line)
    if summary := _finished(run):
        return summary, ""
    told = (_summary(run) or {}).get("reason") or outcome.details
    reason = " ".join(str(told).split())[:_LONGEST_REASON]
    if reason in ("", "N/A"):
        reason = "it ended without a result"
    return None, f"{reason} [{outcome.status}]"


def _summary(run: PlannedRun) -> dict[str, Any] | None:
    """Return the content of ``summary.json``; None when there is none, or only the half of one."""
    try:
        summary = json.loads((run.folder / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return summary if isinstance(summary, dict) else None


def _finished(run: PlannedRun) -> dict[str, Any] | None:
    summary = _summary(run)
    return summary if summary and summary.get("status") == "finished" else None


def _refuse_other_config(run: PlannedRun) -> None:
    if not run.folder.exists():
        return
    try:
        stored = flatten(tomllib.loads(run.config_file.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        raise SweepError(
            f"{run.folder} is there, but its run config {run.config_file.name} beside it cannot be read; "
            "move the folder away or choose another --out"
        ) from None
    if differences := _differences(stored, run.config.flat()):
        raise SweepError(
            f"{run.folder} holds a run with another config ({'; '.join(differences)}); "
            "move it away or choose another --out"
        )


def _differences(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """Name the keys that differ; not those of the folder, for a sweep may be moved and go on."""
    keys = [key for key in {**stored, **wanted} if not key.startswith("output.")]
    return [
        f"{key} is {stored.get(key, 'missing')!r} there and {wanted.get(key, 'missing')!r} now"
        for key in keys
        if key not in stored or key not in wanted or stored[key] != wanted[key]
    ]


def _can_go_on(run: PlannedRun) -> bool:
    """Whether the folder holds a run that was begun, with what it takes to go on."""
    return (run.folder / CONFIG).is_file() and (run.folder / CHECKPOINTS / RUN_KEY).is_file()


def _move_aside(run: PlannedRun, console: Console) -> None:
    if not run.folder.exists():
        return
    number = 1
    while (aside := run.out / f"{run.name}.unfinished-{number}").exists():
        number += 1
    run.folder.rename(aside)
    _say(console, f"{run.name} cannot go on; moved it to {aside.name} and start it anew")


def _say(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)
