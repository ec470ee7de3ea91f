"""What every strategy in the table must hold, a new one included."""

from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
import torch

from fairfal_app.query import QUERY_STRATEGIES, FairFALOptions, build_query_strategy, select
from fairfal_app.query.base import QueryInput, QueryStrategy
from fairfal_app.query.errors import QueryOptionError
from learning.models import build_model
from learning.predict import Predictions, predict
from learning.views import Normalisation
from tests.fairfal_app.query.examples import random_input, reorder_pool

BUDGETS = (1, 7, 39, 40, 41, 1000)


@pytest.fixture(params=QUERY_STRATEGIES)
def strategy(request) -> QueryStrategy:
    return build_query_strategy(request.param)


@pytest.fixture(params=["global", "local"])
def inputs(request) -> QueryInput:
    return random_input(np.random.default_rng(11), pool=40, query_model=request.param)


def query(strategy: QueryStrategy, inputs: QueryInput, budget: int = 7, seed: int = 3) -> list[int]:
    return select(strategy, inputs, budget, np.random.default_rng(seed)).positions.tolist()


def draws(strategy: QueryStrategy, inputs: QueryInput) -> bool:
    """Whether the strategy's answer depends on the generator."""
    return len({tuple(query(strategy, inputs, seed=seed)) for seed in range(5)}) > 1


def test_names(strategy):
    assert build_query_strategy(strategy.name).name == strategy.name
    assert type(strategy) is QUERY_STRATEGIES[strategy.name]


def test_every_strategy_says_what_it_is(strategy):
    first = type(strategy).__doc__.splitlines()[0]
    assert len(first) > 20
    assert first.endswith(".")
    assert first != QueryStrategy.__doc__.splitlines()[0]


def test_options_are_those_of_the_class(strategy):
    assert strategy.options == type(strategy).Options()
    with pytest.raises(FrozenInstanceError):
        strategy.options.name = 1


def test_a_strategy_that_needs_no_predictions_reads_none(strategy, inputs):
    if strategy.needs_predictions:
        return
    blank = np.full_like(inputs.pool_global.probabilities, 0.25), np.zeros_like(inputs.pool_global.features)
    nothing = replace(inputs, pool_global=Predictions(*blank), pool_local=None, labelled_local=None)
    assert query(strategy, nothing) == query(strategy, inputs)


@pytest.mark.parametrize("budget", BUDGETS)
def test_exactly_the_budget_or_the_whole_pool(strategy, inputs, budget):
    positions = query(strategy, inputs, budget)
    assert len(set(positions)) == len(positions) == min(budget, 40)
    assert set(positions) <= set(range(40))


def test_the_same_generator_gives_the_same_answer(strategy, inputs):
    assert query(strategy, inputs) == query(strategy, inputs)
    assert query(build_query_strategy(strategy.name), inputs) == query(strategy, inputs)


def test_inputs_are_left_as_they_were(strategy, inputs):
    before = [part.copy() for part in (inputs.pool_global.probabilities, inputs.pool_global.features)]
    query(strategy, inputs)
    assert np.array_equal(before[0], inputs.pool_global.probabilities)
    assert np.array_equal(before[1], inputs.pool_global.features)


@pytest.mark.parametrize("labels", [[], [2], [2, 2, 2], [0, 1, 2, 3]])
def test_few_labels_one_class_or_none(strategy, labels):
    inputs = random_input(np.random.default_rng(0), pool=20, labels=labels)
    assert len(query(strategy, inputs)) == 7


def test_two_classes(strategy):
    inputs = random_input(np.random.default_rng(0), pool=20, labels=[0, 1, 1], classes=2, features=1)
    assert len(query(strategy, inputs)) == 7


def test_fifty_identical_images(strategy, inputs):
    identical = reorder_pool(inputs, np.zeros(50, dtype=int))
    positions = query(strategy, identical, budget=20)
    assert len(set(positions)) == 20
    if not draws(strategy, inputs):
        assert positions == list(range(20))


def test_features_that_are_all_zero(strategy, inputs):
    pool = replace(inputs.pool_global, features=np.zeros_like(inputs.pool_global.features))
    assert len(query(strategy, replace(inputs, pool_global=pool))) == 7


def test_the_order_of_the_pool_is_irrelevant_without_ties(strategy, inputs):
    if draws(strategy, inputs):
        return
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(40)
        chosen = order[query(strategy, reorder_pool(inputs, order))]
        assert sorted(chosen.tolist()) == query(strategy, inputs)


def test_of_two_identical_images_the_lower_position_goes_first(strategy, inputs):
    if draws(strategy, inputs):
        return
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(np.repeat(np.arange(20), 2))
        positions = query(strategy, reorder_pool(inputs, order), budget=13)
        for position in positions:
            assert int(np.flatnonzero(order == order[position])[0]) in positions


def test_a_generator_is_the_only_source_of_randomness(strategy, inputs):
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    query(strategy, inputs)
    assert np.array_equal(state, np.random.get_state()[1])  # noqa: NPY002


def test_the_batches_of_prediction_do_not_matter(strategy):
    images = torch.randint(
        0, 256, (50, 1, 8, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8
    )
    labels = np.array([0, 1, 2, 0, 1, 2])
    models = [build_model("cnn4", 1, 8, 4, torch.Generator().manual_seed(seed)) for seed in (1, 2)]
    answers = []
    for batch_size in (1, 7, 512):
        looks = [
            predict(model, part, Normalisation((0.5,), (0.25,)), torch.device("cpu"), batch_size=batch_size)
            for part in (images[6:], images[:6])
            for model in models
        ]
        answers.append(query(strategy, QueryInput(*looks, labels, query_model="local", gamma_mean=0.4)))
    assert answers[0] == answers[1] == answers[2]


def test_every_image_can_be_drawn_by_the_random_query():
    inputs = random_input(np.random.default_rng(0), pool=12)
    counts = np.zeros(12)
    for seed in range(600):
        counts[query(build_query_strategy("random"), inputs, budget=4, seed=seed)] += 1
    assert abs(counts / 600 - 1 / 3).max() < 0.1


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(
        QueryOptionError, match=r"no query strategy 'margn'; did you mean 'margin'\? \(there are fairfal, "
    ):
        build_query_strategy("margn")


def test_options_reach_the_strategy():
    assert build_query_strategy("fairfal", FairFALOptions(prototypes="local")).needs_local_model
    assert not build_query_strategy("fairfal").needs_local_model
    with pytest.raises(QueryOptionError, match="'entropy' takes QueryOptions, not FairFALOptions"):
        build_query_strategy("entropy", FairFALOptions(prototypes="local"))
