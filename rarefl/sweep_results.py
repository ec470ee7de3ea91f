"""What a sweep found: a row per run and label round, and means over seeds per grid point and label ratio."""

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

_ROUND_COLUMNS = (
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


def result_rows(
    summaries: Sequence[tuple[PlannedRun, Mapping[str, Any]]], keys: Sequence[str]
) -> pd.DataFrame:
    """Return one row per run and label round.

    Parameters
    ----------
    summaries
        Finished runs of one sweep with the content of their ``summary.json``.
    keys
        The varied keys.

    Returns
    -------
    pandas.DataFrame
        Columns ``run``, the varied keys, ``seed``, the numbers of a label round (missing ones are NaN), and
        ``seconds``, which is the whole run's.
    """
    rows = [
        {"run": run.name, **run.varied, "seed": run.seed}
        | {column: label_round.get(column) for column in _ROUND_COLUMNS}
        | {"seconds": summary.get("seconds")}
        for run, summary in summaries
        for label_round in summary.get("label_rounds", [])
    ]
    frame = pd.DataFrame(rows, columns=["run", *keys, "seed", *_ROUND_COLUMNS, "seconds"])
    measures = [*_ROUND_COLUMNS[3:], "label_ratio", "seconds"]
    return frame.astype(dict.fromkeys(measures, "float64"))


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
        run has the measure.
    """
    table = []
    for place, group in rows.groupby([*keys, "label_round"], sort=False):
        cells = {key: _value(value) for key, value in zip(keys, place, strict=False)}
        cells["label ratio"] = f"{group['label_ratio'].mean():.3g}"
        cells |= {heading: _mean_and_deviation(100 * group[name]) for name, heading in PERCENTAGES.items()}
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
