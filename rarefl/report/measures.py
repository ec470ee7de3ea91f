"""What is measured: the columns of ``results.csv`` that a report shows, and areas under learning curves."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy.integrate import trapezoid

from rarefl.report.sections import Section
from rarefl.sweep_results import TIME_TO


@dataclass(frozen=True)
class Measure:
    """A column and how it is shown.

    Attributes
    ----------
    scale
        The shown number is so many times the column's: 100 makes percent of shares.
    better
        1 where more is better, -1 where less is, 0 where it is neither.
    """

    column: str
    heading: str
    scale: float = 100.0
    decimals: int = 1
    better: int = 1


ACCURACIES = (
    Measure("accuracy", "accuracy %"),
    Measure("balanced_accuracy", "balanced accuracy %"),
    Measure("rare_accuracy", "rare-label accuracy %"),
    Measure("macro_f1", "macro F1 %"),
)
BOUGHT = Measure("rare_label_share", "rare labels bought %")
SECONDS = Measure("seconds", "seconds a run", 1.0, 0, 0)
LAST_FIVE = (
    Measure("accuracy_last5", "accuracy %"),
    Measure("rare_accuracy_last5", "rare-label accuracy %"),
    Measure("common_accuracy_last5", "common-label accuracy %"),
)
_INFLUENCE = (
    Measure("rare_share_of_updates", "participations of rare sites %", better=0),
    Measure("rare_share_of_weight", "weight of rare sites %", better=0),
    Measure("replaced_per_flush", "updates replaced a flush", 1.0, 2, 0),
)
_COST = (Measure("version", "versions", 1.0, 0, 0), SECONDS)


def area_name(measure: Measure) -> Measure:
    """Return the area under the learning curve of a measure, as a measure."""
    return replace(measure, heading=f"area, {measure.heading}")


def accuracies(rows: pd.DataFrame) -> tuple[Measure, ...]:
    """Return the measures of accuracy that the rows tell apart.

    On a balanced test split balanced accuracy equals accuracy; then one line stands for both.
    """
    first, second, *others = ACCURACIES
    if np.allclose(rows[first.column], rows[second.column], rtol=0, atol=1e-9, equal_nan=True):
        return (replace(first, heading="accuracy = balanced accuracy %"), *others)
    return ACCURACIES


def training_measures(rows: pd.DataFrame, virtual: bool | None) -> tuple[tuple[Measure, ...], str]:
    """Return the measures of trainings, and a sentence on the time to an accuracy.

    That is the highest accuracy which every run reached. ``virtual`` tells whether time is computed; None
    where that is not known.
    """
    # Levels have two digits, so that the order of names is the order of numbers.
    levels = sorted(name for name in map(str, rows) if name.startswith(TIME_TO) and rows[name].notna().any())
    common = [name for name in levels if rows[name].notna().all()]
    time = {True: "virtual time", False: "seconds", None: "time"}[virtual]
    reached: tuple[Measure, ...] = ()
    note = "No accuracy with a noted time was reached by every run."
    if common:
        level = 100 * float(common[-1].removeprefix(TIME_TO))
        reached = (Measure(common[-1], f"{time} to {level:.0f} % accuracy", 1.0, 1, -1),)
        note = f"{level:.0f} % is the highest accuracy with a noted time that every run reached."
    return (*LAST_FIVE, *_INFLUENCE, *reached, *_COST), note


def areas(section: Section, measures: Sequence[Measure]) -> pd.DataFrame:
    """Return the area under the learning curves of each run, divided by the range of label ratios.

    Trapezoids over the label ratio; the area is the mean of the curve, a share as the measure itself. A run
    that lacks a label round of the others has none, nor has a protocol with one label round.

    Returns
    -------
    pandas.DataFrame
        A row a run: ``method``, ``seed``, the columns of the measures, ``seconds``.
    """
    rows = section.rows.sort_values("label_round")
    rounds = rows["label_round"].nunique()
    found = []
    for (method, seed), run in rows.groupby(["method", "seed"], sort=False):
        ratios = run["label_ratio"].to_numpy(dtype=np.float64)
        whole = len(run) == rounds and ratios[-1] > ratios[0]
        row = {"method": method, "seed": seed, "seconds": run["seconds"].iloc[0]}
        for measure in measures:
            values = run[measure.column].to_numpy(dtype=np.float64)
            area = trapezoid(values, ratios) / (ratios[-1] - ratios[0]) if whole else np.nan
            row[measure.column] = area
        found.append(row)
    return pd.DataFrame(found)
