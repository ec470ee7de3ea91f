"""What a section shows: which columns of ``results.csv``, and areas under learning curves."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from scipy.integrate import trapezoid

from rarefl.columns import (
    BOUGHT,
    INFLUENCE,
    SECONDS,
    TIME_TO,
    VERSIONS,
    Column,
    curve_columns,
    last_columns,
)
from rarefl.report.sections import Section


def area(column: Column) -> Column:
    """Return how the area under the learning curve of a measure is shown."""
    return replace(column, heading=f"area, {column.heading}")


def curves(rows: pd.DataFrame) -> tuple[Column, ...]:
    """Return the measures of models that the rows of label rounds tell apart.

    On a balanced test split balanced accuracy equals accuracy; then one line stands for both.
    """
    shown = {column.name: column for column in curve_columns()}
    first, second = rows["accuracy"], rows["balanced_accuracy"]
    if np.allclose(first, second, rtol=0, atol=1e-9, equal_nan=True):
        del shown["balanced_accuracy"]
        shown["accuracy"] = replace(shown["accuracy"], heading="accuracy = balanced accuracy %")
    return tuple(shown.values())


def label_round_columns(rows: pd.DataFrame) -> tuple[Column, ...]:
    """Return what is shown after each label round; who shaped the model where it was not everyone alike."""
    return (*curves(rows), BOUGHT, *(INFLUENCE if uneven(rows) else ()))


def uneven(rows: pd.DataFrame) -> bool:
    """Whether rare sites took part more or less often than others in a run, as in asynchronous ones."""
    share, even = rows["rare_share_of_updates"], rows["rare_share_of_clients"]
    told = share.notna() & even.notna()
    return not np.allclose(share[told], even[told], rtol=0, atol=1e-9)


def training_columns(rows: pd.DataFrame, virtual: bool | None) -> tuple[tuple[Column, ...], str]:
    """Return what is shown of trainings, and a sentence on the time to an accuracy.

    That is the highest accuracy which every run reached. ``virtual`` tells whether time is computed; None
    where that is not known.
    """
    # Levels have two digits, so that the order of names is the order of numbers.
    levels = sorted(name for name in map(str, rows) if name.startswith(TIME_TO) and rows[name].notna().any())
    common = [name for name in levels if rows[name].notna().all()]
    time = {True: "virtual time", False: "seconds", None: "time"}[virtual]
    reached: tuple[Column, ...] = ()
    note = "No accuracy with a noted time was reached by every run."
    if common:
        level = 100 * float(common[-1].removeprefix(TIME_TO))
        reached = (Column(common[-1], f"{time} to {level:.0f} % accuracy", 1.0, 1, -1),)
        note = f"{level:.0f} % is the highest accuracy with a noted time that every run reached."
    return (*last_columns(), *INFLUENCE, *reached, VERSIONS, SECONDS), note


def areas(section: Section, columns: Sequence[Column]) -> pd.DataFrame:
    """Return the area under the learning curves of each run, divided by the range of label ratios.

    Trapezoids over the label ratio; the area is the mean of the curve, a share as the measure itself. A run
    that lacks a label round of the others has none, nor has a protocol with one label round.

    Returns
    -------
    pandas.DataFrame
        A row a run: ``method``, ``seed``, the columns, ``seconds``.
    """
    rows = section.rows.sort_values("label_round")
    rounds = rows["label_round"].nunique()
    found = []
    for (method, seed), run in rows.groupby(["method", "seed"], sort=False):
        ratios = run["label_ratio"].to_numpy(dtype=np.float64)
        whole = len(run) == rounds and ratios[-1] > ratios[0]
        row = {"method": method, "seed": seed, "seconds": run["seconds"].iloc[0]}
        for column in columns:
            values = run[column.name].to_numpy(dtype=np.float64)
            under = trapezoid(values, ratios) / (ratios[-1] - ratios[0]) if whole else np.nan
            row[column.name] = under
        found.append(row)
    return pd.DataFrame(found)
