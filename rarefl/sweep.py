"""A sweep: planned runs, one after the other through ``flwr run``, and what they found."""

import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import filelock
import tomli_w
from rich.console import Console

from federation.config.run_config import flatten
from federation.errors import RareflError
from rarefl.checks import read_summary
from rarefl.launch import Ended, Runner, can_go_on, launch
from rarefl.machine import Machine, federation_config
from rarefl.sweep_plan import PlannedRun
from rarefl.sweep_results import grid_table, markdown_table, participation_lines, result_rows, rich_table


class SweepError(RareflError):
    """The folder of a sweep cannot be used as it is."""


@dataclass
class SweepOutcome:
    """How a sweep ended: finished runs with their summaries, and the reasons of those that failed."""

    finished: list[tuple[PlannedRun, dict[str, Any]]] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False


def run_sweep(
    runs: Sequence[PlannedRun],
    open_runner: Callable[[], AbstractContextManager[Runner]],
    console: Console,
    extra_federation_config: str = "",
    machine: Machine | None = None,
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
        ``key=value`` pairs for ``flwr run --federation-config`` in place of what is fitted to the machine.
    machine
        What the runs are fitted to; this machine by default.

    Raises
    ------
    ConfigError
        When the federation config is wrong.
    SweepError
        Before anything runs, when a run's folder holds another run config, or another sweep works in ``out``.
    """
    machine = machine or Machine.this()
    settings = [federation_config(extra_federation_config, run.config.data.clients, machine) for run in runs]
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
    if left_out := participation_lines(outcome.finished):
        for line in left_out:
            _say(console, line)
        parts += ["## Not everybody answered", "\n".join(f"* {line}" for line in left_out)]
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
        resumed = can_go_on(run.folder)
        if not resumed:
            _move_aside(run, console)
        _say(console, f"{label}: {'goes on' if resumed else 'started'}")
        start = time.monotonic()
        ended = _run_one(run, settings, runner, console, resumed)
        durations.append(time.monotonic() - start)
        left = timedelta(seconds=round(sum(durations) / len(durations) * (len(waiting) - place)))
        elapsed = timedelta(seconds=round(durations[-1]))
        if ended.finished:
            outcome.finished.append((run, ended.summary))
            _say(console, f"{label}: finished in {elapsed}, about {left} left")
        else:
            outcome.failed[run.name] = ended.reason
            _say(
                console,
                f"{label}: FAILED after {elapsed}, about {left} left: {ended.reason}; see {run.log_file}",
            )


def _run_one(run: PlannedRun, federation: str, runner: Runner, console: Console, resumed: bool) -> Ended:
    """Run one of them; its run config stays beside its folder, as the record of what that holds."""
    tables = run.config.model_dump(by_alias=True)
    if resumed:
        tables["output"]["resume"] = str(run.folder)
    run.config_file.write_text(tomli_w.dumps(tables), encoding="utf-8")

    def tell(line: str) -> None:
        if line.startswith("["):  # a round, not the folder, the clients or the results of each run
            _say(console, f"    {line}")

    return launch(runner, tables, federation, run.folder, run.log_file, tell)


def _finished(run: PlannedRun) -> dict[str, Any] | None:
    summary = read_summary(run.folder)
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
