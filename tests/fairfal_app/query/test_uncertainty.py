import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairfal_app.query.errors import QueryInputError
from fairfal_app.query.uncertainty import (
    UNCERTAINTIES,
    by_falling_uncertainty,
    entropy,
    least_confidence,
    margin,
)


def test_values():
    probabilities = np.array([[0.5, 0.25, 0.25], [1.0, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3]])
    np.testing.assert_allclose(entropy(probabilities), [1.5 * math.log(2) / math.log(3), 0, 1], atol=1e-12)
    np.testing.assert_allclose(margin(probabilities), [-0.25, -1, 0])
    np.testing.assert_allclose(least_confidence(probabilities), [-0.5, -1, -1 / 3])


@given(st.integers(0, 2**32 - 1), st.integers(2, 12))
def test_entropy_is_that_of_the_paper_up_to_its_epsilon(seed, classes):
    p = np.random.default_rng(seed).dirichlet(np.ones(classes), size=5)
    np.testing.assert_allclose(
        entropy(p), -(p * np.log(p + 1e-12)).sum(axis=1) / math.log(classes), atol=1e-10
    )


@pytest.mark.parametrize("name", UNCERTAINTIES)
def test_an_even_prediction_is_the_most_uncertain_and_a_certain_one_the_least(name):
    values = UNCERTAINTIES[name](np.array([[0.0, 1.0, 0.0], [0.6, 0.3, 0.1], [1 / 3, 1 / 3, 1 / 3]]))
    assert values.argsort().tolist() == [0, 1, 2]


@pytest.mark.parametrize("name", UNCERTAINTIES)
@given(seed=st.integers(0, 2**32 - 1))
def test_rows_do_not_influence_each_other(name, seed):
    p = np.random.default_rng(seed).dirichlet(np.ones(7), size=33)
    chunks = [UNCERTAINTIES[name](p[start : start + 5]) for start in range(0, 33, 5)]
    assert np.array_equal(np.concatenate(chunks), UNCERTAINTIES[name](p))


def test_ties_go_to_the_lower_position():
    assert by_falling_uncertainty(np.array([0.5, 0.9, 0.5, 0.9, 0.1])).tolist() == [1, 3, 0, 2, 4]


def test_tiny_margins_are_told_apart():
    values = margin(np.array([[0.5, 0.5 - 2e-16], [0.5, 0.5 - 1e-16]]))
    assert by_falling_uncertainty(values).tolist() == [1, 0]


def test_one_class():
    one = np.ones((3, 1))
    assert entropy(one).tolist() == [0, 0, 0]
    assert least_confidence(one).tolist() == [-1, -1, -1]
    with pytest.raises(QueryInputError, match="at least 2 classes"):
        margin(one)
