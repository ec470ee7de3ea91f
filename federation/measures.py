"""The table of measures: what a model is measured by, and how each number is shown.

A new measure is one entry of ``MEASURES``: ``rounds.csv``, ``summary.json``, TensorBoard, the tables of
sweeps and of reports take it from there. Read the table as ``measures.MEASURES`` or by the functions here.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from learning.measure import measure

PER_CLASS = "accuracy_class_"
"""Start of the columns with the recall of each class."""

LAST = 5
"""Evaluations at the end of a training over which means are taken."""

Compute = Callable[[np.ndarray, np.ndarray, Collection[int]], float]


@dataclass(frozen=True)
class Measure:
    """One number that tells how good a model is on the server's test images.

    Attributes
    ----------
    name
        Its column in tables and key in summaries.
    heading
        Over a printed column.
    meaning
        One line for the docs.
    compute
        Takes probabilities (N, C), labels (N,) in 0..C-1 and the rare labels; NaN where there is nothing to
        measure. None takes the field ``name`` of :class:`learning.measure.Measures`.
    scale
        The printed number is so many times the measure: 100 makes percent of shares.
    decimals
        Of the printed number.
    better
        1 where more is better, -1 where less is, 0 where it is neither.
    progress
        Its word in the lines of progress; "" leaves it out there.
    curve
        Whether reports and sweeps show it after each label round, and the area under its learning curve.
    last
        Whether the mean over the last evaluations of a training is kept, by which trainings are compared.
    """

    name: str
    heading: str
    meaning: str
    compute: Compute | None = None
    scale: float = 100.0
    decimals: int = 1
    better: int = 1
    progress: str = ""
    curve: bool = True
    last: bool = True

    @property
    def last_name(self) -> str:
        """Column of the mean over the last evaluations."""
        return f"{self.name}_last{LAST}"


MEASURES: tuple[Measure, ...] = (
    Measure("accuracy", "accuracy %", "share of right predictions", progress="accuracy"),
    Measure(
        "balanced_accuracy",
        "balanced accuracy %",
        "mean recall over the classes that the test images have",
        last=False,
    ),
    Measure(
        "rare_accuracy",
        "rare-label accuracy %",
        "share of right predictions among the images with a rare label",
        progress="rare",
    ),
    Measure(
        "common_accuracy",
        "common-label accuracy %",
        "share of right predictions among the other images",
        curve=False,
    ),
    Measure("macro_f1", "macro F1 %", "mean F1 over the classes that occur or are predicted", last=False),
    Measure(
        "loss",
        "loss",
        "mean cross-entropy in nats",
        scale=1.0,
        decimals=3,
        better=-1,
        curve=False,
        last=False,
    ),
)


def measure_row(
    probabilities: np.ndarray, labels: np.ndarray, rare_labels: Collection[int]
) -> dict[str, float]:
    """Return every measure by its name, then ``accuracy_class_0``, ... of each class, for a row of a table.

    Parameters
    ----------
    probabilities
        (N, C); the largest one of a row predicts.
    labels
        (N,) in 0..C-1.
    rare_labels
        The labels that count as rare.

    Raises
    ------
    ValueError
        If there is not one row of probabilities for each label.
    """
    known = measure(probabilities, labels, rare_labels)
    row = {
        each.name: float(
            each.compute(probabilities, labels, rare_labels) if each.compute else getattr(known, each.name)
        )
        for each in MEASURES
    }
    return row | {f"{PER_CLASS}{label}": recall for label, recall in enumerate(known.per_class)}


def headline(row: Mapping[str, float]) -> dict[str, float]:
    """Return what a line of progress tells of a row's measures: word to value; NaN is left out."""
    told = {each.progress: row.get(each.name, math.nan) for each in MEASURES if each.progress}
    return {word: value for word, value in told.items() if not math.isnan(value)}


def last_means(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the means over the last five rows of a training, fewer where there are fewer.

    A row is an evaluation. NaN where one of these rows lacks the measure, or there is no row.
    """
    last = rows[-LAST:]
    return {
        each.last_name: float(np.mean([row.get(each.name, math.nan) for row in last])) if last else math.nan
        for each in MEASURES
        if each.last
    }


def curve_measures() -> list[str]:
    """Return the measures that are shown after each label round, in their order."""
    return [each.name for each in MEASURES if each.curve]


def shown_measures() -> list[str]:
    """Return the measures that are shown of a single training, in their order."""
    return [each.name for each in MEASURES if each.curve or each.last]


def markdown_table() -> str:
    """Return the table of measures for the docs, in Markdown."""
    lines = ["| column | printed as | what it is |", "| --- | --- | --- |"]
    lines += [f"| `{each.name}` | {each.heading} | {each.meaning} |" for each in MEASURES]
    return "\n".join(lines)
