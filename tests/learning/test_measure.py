import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import balanced_accuracy_score, f1_score

from learning.measure import measure


@pytest.fixture(autouse=True)
def _no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_by_hand():
    probabilities = np.array([[0.5, 0.5, 0.0], [0.25, 0.75, 0.0], [0.1, 0.8, 0.1], [0.0, 0.0, 1.0]])
    labels = np.array([0, 0, 1, 2])
    result = measure(probabilities, labels, rare_labels=(2,))
    assert result.loss == pytest.approx((math.log(2) + math.log(4) - math.log(0.8)) / 4)
    assert result.accuracy == 0.75
    assert result.per_class == (0.5, 1.0, 1.0)
    assert result.balanced_accuracy == pytest.approx(2.5 / 3)
    assert result.macro_f1 == pytest.approx((2 / 3 + 2 / 3 + 1) / 3)
    assert result.rare_accuracy == 1.0
    assert result.common_accuracy == pytest.approx(2 / 3)


def test_absent_classes_are_nan_and_do_not_count():
    result = measure(np.array([[0.6, 0.2, 0.2], [0.1, 0.2, 0.7]]), np.array([0, 0]), rare_labels=(1,))
    assert result.per_class[0] == 0.5
    assert math.isnan(result.per_class[1])
    assert math.isnan(result.per_class[2])
    assert result.balanced_accuracy == 0.5
    assert math.isnan(result.rare_accuracy)
    assert result.common_accuracy == 0.5


def test_no_rare_labels():
    result = measure(np.eye(2), np.array([0, 1]), rare_labels=())
    assert math.isnan(result.rare_accuracy)
    assert result.common_accuracy == 1.0
    assert result.macro_f1 == 1.0


def test_rare_accuracy_weighs_images_not_labels():
    probabilities = np.eye(3)[[0, 0, 0, 1, 0, 2]]
    result = measure(probabilities, np.array([0, 0, 0, 1, 1, 2]), rare_labels=(0, 1))
    assert result.rare_accuracy == pytest.approx(4 / 5)
    assert result.common_accuracy == 1.0


def test_one_class():
    result = measure(np.ones((3, 1)), np.zeros(3, dtype=np.int64), rare_labels=())
    assert result.loss == 0.0
    assert result.accuracy == result.balanced_accuracy == result.macro_f1 == 1.0


def test_no_images():
    result = measure(np.empty((0, 2)), np.empty(0, dtype=np.int64), rare_labels=(1,))
    values = (result.loss, result.accuracy, result.balanced_accuracy, result.macro_f1)
    assert all(map(math.isnan, (*values, result.rare_accuracy, result.common_accuracy, *result.per_class)))
    assert len(result.per_class) == 2


def test_zero_probability_costs_a_bounded_loss():
    result = measure(np.array([[1.0, 0.0]]), np.array([1]), rare_labels=())
    assert result.loss == pytest.approx(12 * math.log(10))


def test_nan_probabilities_give_a_nan_loss():
    assert math.isnan(measure(np.full((2, 2), np.nan), np.array([0, 1]), rare_labels=()).loss)


@pytest.mark.parametrize("labels", [np.array([0]), np.array([[0], [1]])])
def test_shapes_must_agree(labels):
    with pytest.raises(ValueError, match=r"\(2, 2\)"):
        measure(np.eye(2), labels, rare_labels=())


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30), st.randoms())
@settings(deadline=None)
def test_order_of_images_does_not_matter_and_shares_are_shares(rows, random):
    shuffled = random.sample(rows, len(rows))
    results = []
    for some in (rows, shuffled):
        labels, predicted = np.array(some).T
        results.append(measure(np.eye(4)[predicted] * 0.8 + 0.05, labels, rare_labels=(0, 3)))
    first, second = results
    assert first.loss == pytest.approx(second.loss)
    for name in (
        "accuracy",
        "balanced_accuracy",
        "macro_f1",
        "rare_accuracy",
        "common_accuracy",
        "per_class",
    ):
        values = np.atleast_1d(getattr(first, name))
        assert np.array_equal(values, np.atleast_1d(getattr(second, name)), equal_nan=True)
        assert all(math.isnan(value) or 0 <= value <= 1 for value in values)
    labels, predicted = np.array(rows).T
    with warnings.catch_warnings(action="ignore"):
        macro_f1 = f1_score(labels, predicted, average="macro", zero_division=0.0)
        balanced_accuracy = balanced_accuracy_score(labels, predicted)
    assert first.macro_f1 == pytest.approx(macro_f1)
    assert first.balanced_accuracy == pytest.approx(balanced_accuracy)
