"""The contract between a query and its strategy, which ``select`` checks."""

from dataclasses import replace

import numpy as np
import pytest

from fairfal_app.query.base import QueryInput, QueryStrategy, Selection, select
from fairfal_app.query.errors import MissingLocalModelError, QueryContractError, QueryInputError
from fairfal_app.query.uncertainty import EntropyQuery
from learning.predict import Predictions
from tests.fairfal_app.query.examples import predictions, random_input, reorder_pool


class Fixed(QueryStrategy):
    """Answers with what it was made with, and remembers whether it was asked."""

    name = "fixed"

    def __init__(self, answer: object, needs_labels: bool = False) -> None:
        self.answer = answer
        self.needs_labels = needs_labels
        self.asked = False

    def select(self, inputs: QueryInput, budget: int, rng: np.random.Generator) -> np.ndarray | Selection:
        self.asked = True
        return self.answer


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(5)


@pytest.fixture
def inputs(rng) -> QueryInput:
    return random_input(rng, pool=8)


def test_positions_come_back_sorted_with_the_audit(inputs, rng):
    audit = object()
    selection = select(Fixed(Selection(np.array([6, 0, 3], dtype=np.int32), audit)), inputs, 3, rng)
    assert selection.positions.tolist() == [0, 3, 6]
    assert selection.positions.dtype == np.int64
    assert selection.audit is audit


@pytest.mark.parametrize("pool", [1, 4, 5])
def test_a_pool_no_larger_than_the_budget_is_taken_whole(inputs, rng, pool):
    strategy = Fixed(None)
    selection = select(strategy, reorder_pool(inputs, np.arange(pool)), 5, rng)
    assert selection.positions.tolist() == list(range(pool))
    assert not strategy.asked


def test_an_empty_pool_gives_an_empty_selection(inputs, rng):
    assert select(Fixed(None), reorder_pool(inputs, np.arange(0)), 5, rng).positions.tolist() == []


def test_without_labels_a_strategy_that_needs_them_becomes_a_random_query(rng):
    bare = random_input(rng, pool=30, labels=[])
    strategy = Fixed(np.arange(4), needs_labels=True)
    first, again, other = (select(strategy, bare, 4, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert not strategy.asked
    assert first.positions.tolist() == again.positions.tolist() != other.positions.tolist()
    assert select(Fixed(np.arange(4)), bare, 4, rng).positions.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (np.array([1, 2]), "chose 2 images where 3 were asked for"),
        (np.array([1, 2, 3, 4]), "chose 4 images where 3"),
        (np.array([1, 2, 2]), "chose position 2 more than once"),
        (np.array([1, 2, 8]), "chose position 8 of a pool of 8 images"),
        (np.array([-1, 2, 3]), "chose position -1 of a pool of 8"),
        (np.array([0.0, 1.0, 2.0]), "type float64, not positions"),
        (np.array([[0, 1, 2]]), r"shape \(1, 3\)"),
    ],
)
def test_a_strategy_that_breaks_the_contract_is_named(inputs, rng, answer, fault):
    with pytest.raises(QueryContractError, match=f"query strategy 'fixed' .*{fault}"):
        select(Fixed(answer), inputs, 3, rng)


@pytest.mark.parametrize("budget", [0, -3])
def test_a_budget_below_one_is_refused(inputs, rng, budget):
    with pytest.raises(QueryInputError, match=f"budget = {budget} is not allowed"):
        select(Fixed(np.arange(3)), inputs, budget, rng)


def spoiled(predictions_: Predictions, part: str, value: float) -> Predictions:
    arrays = {"probabilities": predictions_.probabilities.copy(), "features": predictions_.features.copy()}
    arrays[part][2, 1] = value
    return Predictions(**arrays)


@pytest.mark.parametrize("field", ["pool_global", "pool_local", "labelled_global", "labelled_local"])
@pytest.mark.parametrize("part", ["probabilities", "features"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_prediction_that_is_not_finite_is_named(inputs, rng, field, part, value):
    broken = replace(inputs, **{field: spoiled(getattr(inputs, field), part, value)})
    with pytest.raises(QueryInputError, match=rf"{field}.{part}\[2, 1\] = {value} is not finite"):
        select(Fixed(np.arange(3)), broken, 3, rng)


def test_logits_are_not_probabilities(inputs, rng):
    broken = replace(inputs, pool_global=spoiled(inputs.pool_global, "probabilities", 3.5))
    with pytest.raises(QueryInputError, match=r"pool_global.probabilities range .* 3.5: .*logits"):
        select(Fixed(np.arange(3)), broken, 3, rng)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": np.zeros(3, int)}, "labelled_global has 7 rows .* 3 images are expected"),
        ({"labels": np.full(7, 4)}, r"labels\[0\] = 4 is not allowed: with 4 classes labels go from 0 to 3"),
        ({"labels": np.full(7, -1)}, r"labels\[0\] = -1"),
        ({"labels": np.zeros(7)}, "type float64"),
        ({"labels": np.zeros((7, 1), int)}, r"shape \(7, 1\)"),
        ({"pool_local": predictions(np.ones((5, 4)) / 4, np.ones((5, 6)))}, "pool_local has 5 rows"),
        ({"pool_local": predictions(np.ones((8, 3)) / 3, np.ones((8, 6)))}, "pool_local.*3 classes: 4 are"),
        (
            {"pool_global": predictions(np.ones((8, 4)) / 4, np.ones((7, 6)))},
            "8 rows of .* and 7 of features",
        ),
        ({"pool_global": predictions(np.ones((8, 0)), np.ones((8, 6)))}, "0 classes: at least 1"),
        ({"pool_global": predictions(np.ones(8), np.ones((8, 6)))}, r"shape \(8,\)"),
        ({"pool_global": predictions(np.ones((8, 4)) / 4, np.ones((8, 5)))}, "have 5 and 6 columns"),
        ({"query_model": "best"}, "query_model = 'best' is not allowed"),
        ({"gamma_mean": float("nan")}, "gamma_mean = nan is not allowed"),
    ],
)
def test_inputs_that_do_not_fit_together_are_refused(inputs, rng, change, message):
    with pytest.raises(QueryInputError, match=message):
        select(Fixed(np.arange(3)), replace(inputs, **change), 3, rng)


def test_a_missing_local_model_is_named_with_its_reader(inputs, rng):
    bare = replace(inputs, pool_local=None, labelled_local=None, query_model="local")
    with pytest.raises(MissingLocalModelError, match="pool_local is missing, and the query model 'local'"):
        select(EntropyQuery(), bare, 3, rng)
