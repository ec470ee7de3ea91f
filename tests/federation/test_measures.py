"""The table of measures: the order of columns, the means of the last evaluations, an entry of one's own."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation import measures
from federation.measures import MEASURES, Measure, headline, last_means, markdown_table, measure_row
from learning.measure import measure

PROBABILITIES = np.array([[0.5, 0.5, 0.0], [0.25, 0.75, 0.0], [0.1, 0.8, 0.1], [0.0, 0.0, 1.0]])
LABELS = np.array([0, 0, 1, 2])


def test_a_row_has_every_measure_and_then_every_class() -> None:
    row = measure_row(PROBABILITIES, LABELS, rare_labels=(2,))
    assert list(row) == [
        *("accuracy", "balanced_accuracy", "rare_accuracy", "common_accuracy", "macro_f1", "loss"),
        *("accuracy_class_0", "accuracy_class_1", "accuracy_class_2"),
    ]
    assert row["accuracy"] == 0.75
    assert row["balanced_accuracy"] == pytest.approx(2.5 / 3)
    assert row["common_accuracy"] == pytest.approx(2 / 3)
    assert row["loss"] == measure(PROBABILITIES, LABELS, (2,)).loss
    assert [row[f"accuracy_class_{label}"] for label in range(3)] == [0.5, 1.0, 1.0]
    assert all(type(value) is float for value in row.values())


def test_the_headline_has_rare_labels_where_there_are_some() -> None:
    assert headline(measure_row(PROBABILITIES, LABELS, (2,))) == {"accuracy": 0.75, "rare": 1.0}
    assert headline(measure_row(PROBABILITIES, LABELS, ())) == {"accuracy": 0.75}


def test_means_are_of_the_last_five_rows() -> None:
    rows = [
        {"accuracy": value, "rare_accuracy": math.nan, "common_accuracy": 2 * value, "loss": 1.0}
        for value in (0.9, 0.1, 0.2, 0.3, 0.4, 0.5)
    ]
    found = last_means(rows)
    assert list(found) == ["accuracy_last5", "rare_accuracy_last5", "common_accuracy_last5"]
    assert found["accuracy_last5"] == pytest.approx(0.3)
    assert found["common_accuracy_last5"] == pytest.approx(0.6)
    assert math.isnan(found["rare_accuracy_last5"])
    assert last_means(rows[:2])["accuracy_last5"] == pytest.approx(0.5)
    assert all(math.isnan(value) for value in last_means([]).values())


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9))
def test_a_mean_lies_among_what_it_is_made_of(values: list[float]) -> None:
    told = last_means([{"accuracy": value} for value in values])
    last = values[-5:]
    assert min(last) - 1e-12 <= told["accuracy_last5"] <= max(last) + 1e-12
    # A table from before a measure was known lacks its column.
    assert math.isnan(told["rare_accuracy_last5"])


def test_a_measure_of_ones_own_is_an_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    def least(probabilities: np.ndarray, labels: np.ndarray, rare_labels: object) -> float:
        return float(probabilities[np.arange(len(labels)), labels].min())

    entry = Measure("surest", "surest %", "least probability of a true label", least, progress="surest")
    monkeypatch.setattr(measures, "MEASURES", (*MEASURES, entry))
    row = measure_row(PROBABILITIES, LABELS, (2,))
    assert row["surest"] == 0.25
    assert headline(row)["surest"] == 0.25
    assert last_means([row])["surest_last5"] == 0.25
    assert markdown_table().endswith("\n| `surest` | surest % | least probability of a true label |")


def test_names_are_distinct() -> None:
    names = [name for each in MEASURES for name in (each.name, each.last_name)]
    assert len(set(names)) == len(names)
