"""What a sweep found: rows of single runs, and means over seeds per grid point.

A run of ``fairfal`` has a row per label round; a run of ``fedraw`` has one, its final result.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from rich import box
from rich.table import Table

from rarefl.sweep_plan import PlannedRun

PERCENTAGES = {
    "accuracy": "accuracy %",
    "balanced_accuracy": "balanced accuracy %",
    "rare_accuracy": "rare accuracy %",
    "rare_label_share": "rare labels bought %",
}
"""Measures of a label round that the table shows, with their headings; shares in 0..1."""

ROUND_COLUMNS = (
    "label_round",
    "label_ratio",
    "labelled",
    "accuracy",
    "balanced_accuracy",
    "rare_accuracy",
    "macro_f1",
    "loss",
    "accuracy_last5",
    "rare_label_share",
)

TRAINING_PERCENTAGES = {
    "accuracy_last5": "accuracy %",
    "rare_accuracy_last5": "rare accuracy %",
    "common_accuracy_last5": "common accuracy %",
    "rare_share_of_updates": "rare sites' updates %",
    "rare_share_of_weight": "rare sites' weight %",
}
"""Measures of a training that the table shows: means of the last five evaluations, shares of influence."""

TRAINING_COLUMNS = (
    *("version", "time", "accuracy", "balanced_accuracy", "rare_accuracy", "common_accuracy", "macro_f1"),
    *("loss", "accuracy_last5", "rare_accuracy_last5", "common_accuracy_last5", "aggregated"),
    *("replaced_per_flush", "rare_share_of_clients", "rare_share_of_updates", "rare_share_of_weight"),
)
TIME_TO = "time_to_"


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
    columns = [*TRAINING_COLUMNS, *levels] if training else [*ROUND_COLUMNS]
    frame = pd.DataFrame(rows, columns=["run", *keys, "seed", *columns, "seconds"])
    counts = {"label_round", "labelled"}
    return frame.astype(dict.fromkeys([*(set(columns) - counts), "seconds"], "float64"))


def summary_rows(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what a run has come to by its ``summary.json``: a row a label round, or one of a training.

    Columns are :data:`ROUND_COLUMNS` or :data:`TRAINING_COLUMNS` (None where the run has no such number),
    ``time_to_...``, the times at which a training reached accuracies, and ``seconds`` of the whole run.
    """
    seconds = {"seconds": summary.get("seconds")}
    if "result" not in summary:
        return [
            {column: label_round.get(column) for column in ROUND_COLUMNS} | seconds
            for label_round in summary.get("label_rounds", [])
        ]
    times = {f"{TIME_TO}{level}": time for level, time in summary.get("time_to_accuracy", {}).items()}
    return [{column: summary["result"].get(column) for column in TRAINING_COLUMNS} | times | seconds]


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
        deviation`` (sample, n - 1) in percent over seeds, the mean alone for one seed, and a dash where no
        run has the measure. Trainings also tell the time to the highest accuracy that all of them reached.
    """
    if "label_round" not in rows:
        return _training_table(rows, keys)
    table = []
    for place, group in rows.groupby([*keys, "label_round"], sort=False):
        cells = {key: _value(value) for key, value in zip(keys, place, strict=False)}
        cells["label ratio"] = f"{group['label_ratio'].mean():.3g}"
        cells |= {heading: _mean_and_deviation(100 * group[name]) for name, heading in PERCENTAGES.items()}
        cells["seconds"] = f"{group['seconds'].mean():.0f}"
        cells["seeds"] = str(len(group))
        table.append(cells)
    return table


def _training_table(rows: pd.DataFrame, keys: Sequence[str]) -> list[dict[str, str]]:
    reached = [name for name in map(str, rows) if name.startswith(TIME_TO) and rows[name].notna().all()]
    table = []
    for place, group in rows.assign(_all=0).groupby([*keys, "_all"], sort=False):
        cells = {key: _value(value) for key, value in zip(keys, place, strict=False)}
        for name, heading in TRAINING_PERCENTAGES.items():
            cells[heading] = _mean_and_deviation(100 * group[name])
        cells["replaced per flush"] = _mean_and_deviation(group["replaced_per_flush"])
        if reached:
            level = float(max(reached).removeprefix(TIME_TO))
            cells[f"time to {100 * level:.0f} %"] = _mean_and_deviation(group[max(reached)])
        cells["seconds"] = f"{group['seconds'].mean():.0f}"
        cells["seeds"] = str(len(group))
        table.append(cells)
    return table


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


def _mean_and_deviation(values: pd.Series) -> str:
    mean, deviation = values.mean(), values.std(ddof=1)
    if math.isnan(mean):
        return "-"
    return f"{mean:.2f}" if math.isnan(deviation) else f"{mean:.2f} ± {deviation:.2f}"


def _value(value: Any) -> str:
    return str(value).removesuffix(".0")
