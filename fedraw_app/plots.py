"""Plots of one training: accuracy over time, who took part and who counted, how stale updates were."""

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.figure import Figure

from federation.colours import BLUE, GREEN, ORANGE


def draw_accuracy(rounds: pd.DataFrame, virtual: bool) -> Figure:
    """Return accuracy of all, rare and common labels over the run's time; columns as in ``rounds.csv``."""
    figure = Figure(figsize=(7.6, 4.2), layout="constrained")
    axes = figure.subplots()
    lines = (
        ("accuracy", "all labels", BLUE, "o"),
        ("common_accuracy", "common labels", ORANGE, "s"),
        ("rare_accuracy", "rare labels", GREEN, "^"),
    )
    for column, name, colour, marker in lines:
        if rounds[column].notna().any():
            axes.plot(rounds["time"], rounds[column], color=colour, marker=marker, markersize=4, label=name)
    axes.set_xlabel("virtual time in s" if virtual else "time in s")
    axes.set_ylabel("accuracy on the server's test images")
    axes.set_ylim(0.0, 1.0)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    return figure


def draw_influence(sites: Sequence[Mapping[str, float]]) -> Figure:
    """Return each site's share of the updates against its share of the weight; rows as in ``influence.csv``.

    A site on the dashed line counts as much as it takes part; the dotted lines show even shares.
    """
    figure = Figure(figsize=(5.2, 5.0), layout="constrained")
    axes = figure.subplots()
    for rare, name, colour, marker in (
        (0, "other sites", BLUE, "o"),
        (1, "sites with rare labels", GREEN, "^"),
    ):
        group = [row for row in sites if row["rare"] == rare]
        if group:
            shares = [[row[column] for row in group] for column in ("share_of_updates", "share_of_weight")]
            axes.scatter(*shares, color=colour, marker=marker, alpha=0.8, label=name)
    even = 1.0 / len(sites)
    largest = 1.1 * max(max(row["share_of_updates"], row["share_of_weight"]) for row in sites)
    axes.plot([0.0, largest], [0.0, largest], color="grey", linestyle="--", linewidth=1)
    axes.axhline(even, color="grey", linestyle=":", linewidth=1)
    axes.axvline(even, color="grey", linestyle=":", linewidth=1)
    axes.set_xlim(0.0, largest)
    axes.set_ylim(0.0, largest)
    axes.set_xlabel("share of the updates")
    axes.set_ylabel("share of the weight")
    axes.legend(loc="upper left")
    return figure


def draw_staleness(counts: Mapping[int, int]) -> Figure:
    """Return the histogram of staleness: aggregated updates by versions published since dispatch."""
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.subplots()
    axes.bar(list(counts), list(counts.values()), color=BLUE, width=0.9)
    axes.set_xlabel("staleness in versions")
    axes.set_ylabel("aggregated updates")
    return figure
