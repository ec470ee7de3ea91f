"""The table of influence, by hand, and the plots of a training."""

import math

import pandas as pd
import pytest

from fedraw.run.influence import Influence
from fedraw_app.influence import influence_rows
from fedraw_app.plots import draw_accuracy, draw_influence, draw_staleness


def influence() -> Influence:
    """Return the counts of two flushes: a, b, then a, c; c is rare and weighs twice as much."""
    counts = Influence()
    counts.flush(1, 1.0, ["a", "b"], [0, 1], {"a": 0.5, "b": 0.5}, {"c"}, 0.1)
    counts.flush(2, 2.0, ["a", "c"], [0, 3], {"a": 0.25, "c": 0.75}, {"c"}, 0.1)
    counts.replaced["a"] = 2
    return counts


def test_shares_and_biases_by_hand() -> None:
    a, b, c, d, rare = influence_rows(influence(), ["d", "c", "b", "a"], {"c"})
    assert [row["site"] for row in (a, b, c, d, rare)] == ["a", "b", "c", "d", "(rare sites)"]
    assert (a["participations"], a["weight"], a["replaced"]) == (2, 0.75, 2)
    assert (a["share_of_clients"], a["share_of_updates"], a["share_of_weight"]) == (0.25, 0.5, 0.375)
    assert (a["participation_bias"], a["aggregation_bias"]) == (2.0, 0.75)
    assert (d["participations"], d["participation_bias"], d["aggregation_bias"]) == (0, 0.0, None)
    assert [row["rare"] for row in (a, b, c, d, rare)] == [0, 0, 1, 0, 1]
    assert rare["aggregation_bias"] == c["aggregation_bias"] == pytest.approx(1.5)


def test_without_rare_sites_the_group_has_nothing() -> None:
    rare = influence_rows(influence(), "abc", ())[-1]
    assert (rare["rare"], rare["participations"], rare["participation_bias"]) == (0, 0, None)


def test_plots_show_what_there_is() -> None:
    rounds = pd.DataFrame(
        {"time": [0.0, 5.0], "accuracy": [0.1, 0.9], "rare_accuracy": math.nan, "common_accuracy": [0.1, 0.8]}
    )
    (axes,) = draw_accuracy(rounds, virtual=True).axes
    assert [line.get_label() for line in axes.lines] == ["all labels", "common labels"]
    assert axes.get_xlabel() == "virtual time in s"
    rows = influence_rows(influence(), "abc", {"c"})[:-1]
    (axes,) = draw_influence(rows).axes
    assert [len(group.get_offsets()) for group in axes.collections] == [2, 1]
    (axes,) = draw_staleness(influence().staleness).axes
    assert [(bar.get_center()[0], bar.get_height()) for bar in axes.patches] == [(0, 2), (1, 1), (3, 1)]
