"""A results file as ``rarefl sweep`` writes it: its lines become runs again."""

from pathlib import Path

import numpy as np
import pandas as pd

from rarefl.columns import TIME_TO, round_columns, training_columns
from rarefl.report.runs import App, Findings, ReportError, Run, one_line, whole_lines


def read_results(path: Path, findings: Findings) -> None:
    """Add the runs of a results file as ``rarefl sweep`` writes it.

    Raises
    ------
    ReportError
        It cannot be read, lacks a column, or has a cell that is empty or no number where one is due; the line
        is named.
    """
    try:
        frame = pd.read_csv(whole_lines(path, findings.warnings), dtype=str)
    except (OSError, ValueError) as error:
        raise ReportError(f"{path} cannot be read: {one_line(error)}") from None
    columns = list(frame.columns)
    app: App = "fairfal" if "label_round" in columns else "fedraw"
    needed = ("run", "seed", "label_round", "label_ratio") if app == "fairfal" else ("run", "seed", "version")
    if lacking := [name for name in needed if name not in columns]:
        raise ReportError(
            f"{path} has no column {', '.join(lacking)}; "
            "a report takes results.csv as `rarefl sweep` writes it"
        )
    keys = columns[columns.index("run") + 1 : columns.index("seed")]
    known = {*round_columns(), *training_columns(), "seconds", "seed"}
    numbers = [name for name in columns if name in known or name.startswith(TIME_TO)]
    for name in numbers:
        frame[name] = _numbers(path, frame[name], name)
    for column in needed:
        if len(empty := np.flatnonzero(frame[column].isna())):
            raise ReportError(f"{path}, line {empty[0] + 2}: {column} is empty")
    if app == "fairfal":
        frame["label_round"] = frame["label_round"].astype("int64")
    if frame.empty:
        findings.left_out[str(path)] = "it holds no run"
    for run, rows in frame.groupby("run", sort=False):
        config = {key: rows[key].fillna("").iloc[0] for key in keys}
        numeric = rows[[column for column in numbers if column != "seed"]].reset_index(drop=True)
        seed = int(rows["seed"].iloc[0])
        findings.runs.append(Run(str(run), app, seed, config, numeric, source=str(path)))


def _numbers(path: Path, texts: pd.Series, column: str) -> pd.Series:
    numbers = pd.to_numeric(texts, errors="coerce")
    wrong = numbers.isna() & texts.notna()
    if len(places := np.flatnonzero(wrong)):
        place = places[0]
        raise ReportError(f"{path}, line {place + 2}: {column} = {texts.iloc[place]!r} is not a number")
    return numbers.astype("float64")
