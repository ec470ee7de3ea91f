"""Runs found in folders and in results of sweeps."""

import json
import os
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from federation.config.run_config import flatten
from federation.runs.run_folder import CONFIG, SUMMARY
from rarefl.report.results_file import read_results
from rarefl.report.runs import APPS, Findings, ReportError, Run, one_line
from rarefl.sweep_results import summary_rows

_REASONS = {
    "running": "not finished: it is still running, or was killed",
    "failed": "failed",
    "diverged": "its model diverged",
}


def read(paths: Sequence[Path]) -> Findings:
    """Return the runs under folders, found at any depth, and those of results files (``results.csv``).

    Raises
    ------
    ReportError
        A path does not exist, a results file is none, or there is no finished run at all.
    """
    findings = Findings()
    folders: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            found = dict.fromkeys(sorted(_run_folders(path.resolve())))
            if not found:
                findings.left_out[str(path)] = _no_run(path)
            folders |= found
        elif path.is_file():
            read_results(path, findings)
        else:
            raise ReportError(f"{path} does not exist; give folders of runs, or results.csv of a sweep")
    for folder in folders:
        _read_folder(folder, findings)
    if not findings.runs:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in findings.left_out.items())
        raise ReportError(f"there is no finished run to report. {reasons}")
    return findings


def _run_folders(top: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(top):
        folders[:] = [name for name in folders if not name.startswith(".")]
        if CONFIG in files or SUMMARY in files:
            yield Path(place)


def _no_run(folder: Path) -> str:
    tables = sorted(path.name for path in folder.glob("*.csv"))
    hint = f"; to report a results file, name it: {folder / tables[0]}" if tables else ""
    return f"there is no {CONFIG} and no {SUMMARY} in it or below{hint}"


def _read_folder(folder: Path, findings: Findings) -> None:
    try:
        summary = _summary(folder / SUMMARY)
        if summary["status"] != "finished":
            reason = _REASONS.get(summary["status"], str(summary["status"]))
            told = f": {one_line(summary['reason'])}" if summary.get("reason") else ""
            findings.left_out[str(folder)] = reason + told
            return
        findings.runs.append(_run(folder, summary))
    except ReportError as error:
        findings.left_out[str(folder)] = str(error)


def _run(folder: Path, summary: dict[str, Any]) -> Run:
    try:
        config = flatten(tomllib.loads((folder / CONFIG).read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise ReportError(f"no run: {CONFIG} is missing") from None
    except (OSError, ValueError) as error:
        raise ReportError(f"no run: {CONFIG} cannot be read ({one_line(error)})") from None
    app, seed = config.get("app"), config.get("seed")
    if app not in APPS or not isinstance(seed, int):
        raise ReportError(f"no run: {CONFIG} has app = {app!r} and seed = {seed!r}")
    try:
        rows = pd.DataFrame(summary_rows(summary))
        columns = rows.columns.difference(["label_round", "labelled"])
        rows = rows.astype(dict.fromkeys(columns, "float64"))
    except (AttributeError, TypeError, ValueError) as error:
        raise ReportError(f"{SUMMARY} has no results as a run writes them ({one_line(error)})") from None
    wanted = "label_round" if app == "fairfal" else "version"
    if rows.empty or wanted not in rows:
        raise ReportError(f"{SUMMARY} has no results of a run of {app}")
    return Run(str(folder), app, seed, config, rows, summary, folder)


def _summary(path: Path) -> dict[str, Any]:
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ReportError(f"no run: {SUMMARY} is missing") from None
    except (OSError, ValueError) as error:
        raise ReportError(f"{SUMMARY} cannot be read ({one_line(error)})") from None
    if not isinstance(summary, dict) or "status" not in summary:
        raise ReportError(f"no run: {SUMMARY} has no status")
    return summary
