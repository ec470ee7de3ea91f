"""What a sweep found: rows of single runs, and means over seeds per grid point.

A run of ``fairfal`` has a row per label round; a run of ``fedraw`` has one, its final result.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from rich import box
from rich.table import Table

from federation.runs.participation import all_answered, participation_line
from rarefl.columns import (
    BOUGHT,
    INFLUENCE,
    TIME_TO,
    Column,
    curve_columns,
    last_columns,
    round_columns,
    training_columns,
)
from rarefl.sweep_plan import PlannedRun


def result_rows(
    summaries: Sequence[tuple[PlannedRun, Mapping[str, Any]]], keys: Sequence[str]
) -> pd.DataFrame:
    """Return one row per run and label round, or one per run where runs are trainings without queries.

    Parameters
    ----------
    summaries
        Finished runs of one sweep with the content of their ``summary.json``.
    keys
        The varied keys.

    Returns
    -------
    pandas.DataFrame
        Columns ``run``, the varied keys, ``seed``, the numbers of a label round or of a training (missing
        ones are NaN), and ``seconds``, which is the whole run's.
    """
    training = any("result" in summary for _, summary in summaries)
    rows = [
        {"run": run.name, **run.varied, "seed": run.seed} | row
        for run, summary in summaries
        for row in (summary_rows(summary)[-1:] if training else summary_rows(summary))
    ]
    levels = sorted({column for row in rows for column in row if column.startswith(TIME_TO)})
    columns = [*training_columns(), *levels] if training else [*round_columns()]
    frame = pd.DataFrame(rows, columns=["run", *keys, "seed", *columns, "seconds"])
    counts = {"label_round", "labelled"}
    return frame.astype(dict.fromkeys([*(set(columns) - counts), "seconds"], "float64"))


def summary_rows(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what a run has come to by its ``summary.json``: a row a label round, or one of a training.

    Columns are those of :mod:`rarefl.columns` (None where the run has no such number), ``time_to_...``, the
    times at which a training reached accuracies, and ``seconds`` of the whole run.
    """
    seconds = {"seconds": summary.get("seconds")}
    if "result" not in summary:
        return [
            {column: label_round.get(column) for column in round_columns()} | seconds
            for label_round in summary.get("label_rounds", [])
        ]
    times = {f"{TIME_TO}{level}": time for level, time in summary.get("time_to_accuracy", {}).items()}
    return [{column: summary["result"].get(column) for column in training_columns()} | times | seconds]


def grid_table(rows: pd.DataFrame, keys: Sequence[str]) -> list[dict[str, str]]:
    """Return the table of a sweep, ready to print: heading to cell.

    Parameters
    ----------
    rows
        What :func:`result_rows` returned.
    keys
        The keys that tell grid points apart.

    Returns
    -------
    list of dict
        One per grid point and label round, in the order of the rows. Measures are ``mean ± standard
        deviation`` (sample, n - 1) over seeds, the mean alone for one seed, and a dash where no run has the
        measure. Trainings also tell the time to the highest accuracy that all of them reached.
    """
    if "label_round" not in rows:
        return _training_table(rows, keys)
    table = []
    for place, group in rows.groupby([*keys, "label_round"], sort=False):
        cells = {key: _value(value) for key, value in zip(keys, place, strict=False)}
        cells["label ratio"] = f"{group['label_ratio'].mean():.3g}"
        cells |= _shown(group, (*curve_columns(), BOUGHT))
        cells["seconds"] = f"{group['seconds'].mean():.0f}"
        cells["seeds"] = str(len(group))
        table.append(cells)
    return table


def _training_table(rows: pd.DataFrame, keys: Sequence[str]) -> list[dict[str, str]]:
    reached = [name for name in map(str, rows) if name.startswith(TIME_TO) and rows[name].notna().all()]
    table = []
    for place, group in rows.assign(_all=0).groupby([*keys, "_all"], sort=False):
        cells = {key: _value(value) for key, value in zip(keys, place, strict=False)}
        cells |= _shown(group, (*last_columns(), *INFLUENCE))
        if reached:
            level = float(max(reached).removeprefix(TIME_TO))
            cells[f"time to {100 * level:.0f} %"] = _mean_and_deviation(group[max(reached)])
        cells["seconds"] = f"{group['seconds'].mean():.0f}"
        cells["seeds"] = str(len(group))
        table.append(cells)
    return table


def participation_lines(summaries: Sequence[tuple[PlannedRun, Mapping[str, Any]]]) -> list[str]:
    """Return a line a run in which a client did not answer a query: its name, and who was left out."""
    told = [(run.name, summary.get("participation")) for run, summary in summaries]
    return [f"{name}: {participation_line(each)}" for name, each in told if not all_answered(each)]


def rich_table(table: Sequence[Mapping[str, str]]) -> Table:
    """Return the table for a terminal."""
    drawn = Table(box=box.SIMPLE_HEAD)
    for heading in table[0]:
        drawn.add_column(heading, justify="right")
    for cells in table:
        drawn.add_row(*cells.values())
    return drawn


def markdown_table(table: Sequence[Mapping[str, str]]) -> str:
    """Return the table in Markdown."""
    lines = [_markdown_row(table[0]), _markdown_row(["---:"] * len(table[0]))]
    lines += [_markdown_row(cells.values()) for cells in table]
    return "\n".join(lines)


def _markdown_row(cells: Any) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def _shown(group: pd.DataFrame, columns: Sequence[Column]) -> dict[str, str]:
    return {
        column.heading: _mean_and_deviation(column.scale * group[column.name], max(2, column.decimals))
        for column in columns
    }


def _mean_and_deviation(values: pd.Series, decimals: int = 2) -> str:
    mean, deviation = values.mean(), values.std(ddof=1)
    if math.isnan(mean):
        return "-"
    told = f"{mean:.{decimals}f}"
    return told if math.isnan(deviation) else f"{told} ± {deviation:.{decimals}f}"


def _value(value: Any) -> str:
    return str(value).removesuffix(".0")
