from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.query import plain_fairfal
from fairfal_app.query import build_query_strategy
from fairfal_app.query.base import QueryInput, Selection, select
from fairfal_app.query.errors import MissingLocalModelError, QueryInputError, QueryOptionError
from fairfal_app.query.fairfal import FairFAL, FairFALOptions
from fairfal_app.query.uncertainty import UNCERTAINTIES
from learning.predict import Predictions
from tests.fairfal_app.query.examples import predictions, random_input


def run(inputs: QueryInput, budget: int, **options: object) -> Selection:
    return select(FairFAL(FairFALOptions(**options)), inputs, budget, np.random.default_rng(0))


def two(p: float) -> list[float]:
    """Probabilities of three classes, the third with none."""
    return [p, 1 - p, 0]


@pytest.fixture
def hand_made() -> QueryInput:
    """Seven pool images, two labelled ones of the classes 0 and 1 of three; all numbers are exact.

    Prototypes are (1, 0) and (0, 1), so the buckets are {0, 1, 3, 5, 6} (position 6 is a tie) and {2, 4}. A
    gradient embedding is v (outer) (1, -1, 0), with v the features times the residual at class 0: (1, 0),
    (-1, -1/4), (0, 1), (1, 0), (0, 0), (1, 1/2), (0, 0) for the pool and (1/2, 0) for the anchor of class 0.
    """
    return QueryInput(
        pool_global=predictions(
            [two(p) for p in (0.5, 0.25, 0.5, 0.75, 1, 0.5, 0)],
            [[2, 0], [4, 1], [0, 2], [4, 0], [1, 3], [2, 1], [1, 1]],
        ),
        pool_local=predictions([two(p) for p in (0.4, 0.3, 0.1, 0.1, 0.5, 0.2, 0.5)], np.zeros((7, 4))),
        labelled_global=predictions([two(0.5), two(0.5)], [[1, 0], [0, 1]]),
        labelled_local=predictions([two(1), two(0)], np.zeros((2, 4))),
        labels=np.array([0, 1]),
        query_model="local",
        gamma_mean=0.5,
    )


def test_hand_made_query(hand_made):
    selection = run(hand_made, budget=4, kappa=1.5)
    audit = selection.audit
    # Bucket 2 is empty, its unit goes to bucket 0. Stage 1 keeps 4 of 5 and 1 of 2. In stage 2
    # half the squared distances of 6, 0, 1, 5 to the anchor are 1/4, 1/4, 37/16, 1/2: first 1,
    # then 5, then a tie of 6 and 0.
    assert [bucket.tolist() for bucket in audit.buckets] == [[6, 0, 1, 5, 3], [4, 2], []]
    assert audit.quotas == (3, 1, 0)
    assert [picks.tolist() for picks in audit.picks] == [[1, 5, 6], [4], []]
    assert selection.positions.tolist() == [1, 4, 5, 6]
    # Priors are (1/2, 1/2, 0) under both models.


def test_stage_one_goes_by_the_query_model(hand_made):
    assert run(hand_made, budget=2, kappa=1).audit.picks[1].tolist() == [4]
    by_global = run(replace(hand_made, query_model="global"), budget=2, kappa=1)
    assert by_global.audit.picks[1].tolist() == [2]


def test_pseudo_labels_and_stage_two_go_by_global_features_whatever_the_query_model():
    rng = np.random.default_rng(4)
    inputs = random_input(rng, pool=60, query_model="local")
    other = random_input(rng, pool=60)
    changed = replace(
        inputs,
        pool_local=Predictions(inputs.pool_local.probabilities, other.pool_local.features),
        labelled_local=other.labelled_local,
    )
    assert run(inputs, 12).positions.tolist() == run(changed, 12).positions.tolist()
    changed = replace(
        inputs, pool_global=Predictions(inputs.pool_global.probabilities, other.pool_global.features)
    )
    assert run(inputs, 12).positions.tolist() != run(changed, 12).positions.tolist()


def test_residuals_take_the_classifiers_label_for_the_pool_and_the_true_one_for_anchors():
    # One bucket, class 0. Residuals at class 0 are -0.45 and 0.1 for the pool and, by its true label, 0.6 for
    # the anchor: distances 1.05 and 0.5 pick position 0. With the bucket's class for the pool, or the
    # likeliest class for the anchor, position 0 would be the nearer one at 0.05.
    inputs = QueryInput(
        pool_global=predictions([[0.45, 0.55], [0.9, 0.1]], [[1], [1]]),
        pool_local=None,
        labelled_global=predictions([[0.4, 0.6]], [[1]]),
        labelled_local=None,
        labels=np.array([0]),
        query_model="global",
    )
    assert run(inputs, budget=1).positions.tolist() == [0]


def test_anchors_are_those_of_the_buckets_class():
    # In bucket 0 position 1 is nearer to the anchor of class 0 (3.24 against 5.49) and position 0 nearer to
    # that of class 1 (2.49): with all anchors position 1 would be picked.
    inputs = QueryInput(
        pool_global=predictions([[0.45, 0.55], [0.6, 0.4], [0.5, 0.5]], [[4, 1], [5.75, 0], [3, 4]]),
        pool_local=None,
        labelled_global=predictions([[0.5, 0.5], [0.5, 0.5]], [[1, 0], [3, 4]]),
        labelled_local=None,
        labels=np.array([0, 1]),
        query_model="global",
    )
    audit = run(inputs, budget=2).audit
    assert [bucket.tolist() for bucket in audit.buckets] == [[0, 1], [2]]
    assert [picks.tolist() for picks in audit.picks] == [[0], [2]]


@given(st.integers(0, 2**32 - 1), st.integers(1, 45), st.sampled_from(["global", "local"]))
def test_queries_equal_those_of_plain_loops(seed, budget, query_model):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 5, size=rng.integers(1, 15))
    inputs = random_input(rng, pool=46, labels=labels, classes=6, query_model=query_model)
    selection = run(inputs, budget)
    assert selection.positions.tolist() == plain_fairfal(inputs, budget)


@given(st.integers(0, 2**32 - 1), st.integers(1, 29))
def test_the_audit_accounts_for_the_selection(seed, budget):
    rng = np.random.default_rng(seed)
    inputs = random_input(rng, pool=30, labels=rng.integers(0, 3, size=6), classes=5)
    selection = run(inputs, budget)
    audit = selection.audit
    assert sorted(np.concatenate(audit.buckets).tolist()) == list(range(30))
    assert sorted(np.concatenate(audit.picks).tolist()) == selection.positions.tolist()
    for label, (bucket, quota, picks) in enumerate(
        zip(audit.buckets, audit.quotas, audit.picks, strict=True)
    ):
        assert len(picks) == quota
        assert set(picks) <= set(bucket[: 4 * quota])
        assert label in inputs.labels or len(bucket) == 0


def test_at_kappa_one_the_most_uncertain_of_each_bucket_are_taken():
    inputs = random_input(np.random.default_rng(1), pool=50)
    audit = run(inputs, 20, kappa=1).audit
    for bucket, quota, picks in zip(audit.buckets, audit.quotas, audit.picks, strict=True):
        assert picks.tolist() == bucket[:quota].tolist()


@pytest.mark.parametrize("uncertainty", UNCERTAINTIES)
def test_without_prototypes_and_at_kappa_one_it_is_the_uncertainty_query(uncertainty):
    inputs = random_input(np.random.default_rng(2), pool=50, query_model="local")
    selection = run(inputs, 20, kappa=1, prototypes="none", uncertainty=uncertainty)
    plain = select(build_query_strategy(uncertainty), inputs, 20, np.random.default_rng(0))
    assert selection.positions.tolist() == plain.positions.tolist()


def test_without_prototypes_the_pool_is_one_bucket_and_every_label_an_anchor():
    # Residuals at class 0 are -0.45, 0.1 and 0.4 for the pool, 0.4 (class 0) and -0.45 (class 1) for the
    # anchors: the anchor of class 1 keeps position 0 from being picked.
    inputs = QueryInput(
        pool_global=predictions([[0.45, 0.55], [0.9, 0.1], [0.6, 0.4]], [[1], [1], [1]]),
        pool_local=None,
        labelled_global=predictions([[0.6, 0.4], [0.45, 0.55]], [[1], [1]]),
        labelled_local=None,
        labels=np.array([0, 1]),
        query_model="global",
    )
    audit = run(inputs, 1, prototypes="none").audit
    assert (len(audit.buckets), audit.quotas) == (1, (1,))
    assert audit.picks[0].tolist() == [1]


def test_local_prototypes_are_those_of_the_local_models_features():
    inputs = random_input(np.random.default_rng(3), pool=50)
    swapped = replace(
        inputs,
        pool_global=Predictions(inputs.pool_global.probabilities, inputs.pool_local.features),
        labelled_global=Predictions(inputs.labelled_global.probabilities, inputs.labelled_local.features),
    )
    local, expected = run(inputs, 9, prototypes="local").audit, run(swapped, 9).audit
    assert [b.tolist() for b in local.buckets] == [b.tolist() for b in expected.buckets]
    assert [b.tolist() for b in local.buckets] != [b.tolist() for b in run(inputs, 9).audit.buckets]


def test_automatic_gradient_probabilities_are_the_local_models_from_a_mean_gamma_of_a_half():
    inputs = random_input(np.random.default_rng(6), pool=80, query_model="global")
    as_global = run(inputs, 12).positions.tolist()
    swapped = replace(
        inputs,
        pool_global=Predictions(inputs.pool_local.probabilities, inputs.pool_global.features),
        pool_local=Predictions(inputs.pool_global.probabilities, inputs.pool_local.features),
        labelled_global=Predictions(inputs.labelled_local.probabilities, inputs.labelled_global.features),
        query_model="local",
    )
    as_local = run(swapped, 12).positions.tolist()
    assert as_global != as_local
    for gamma_mean, expected in ((0.49, as_global), (0.5, as_local)):
        chosen = run(replace(inputs, gamma_mean=gamma_mean), 12, gradient_probabilities="auto")
        assert chosen.positions.tolist() == expected
    with pytest.raises(QueryInputError, match="gamma_mean is missing"):
        run(replace(inputs, gamma_mean=None), 12, gradient_probabilities="auto")


@pytest.mark.parametrize("options", [{"prototypes": "local"}, {"gradient_probabilities": "auto"}])
def test_an_option_that_reads_the_local_model_says_so(options):
    strategy = FairFAL(FairFALOptions(**options))
    assert strategy.needs_local_model
    inputs = random_input(np.random.default_rng(0))
    bare = replace(inputs, pool_local=None, labelled_local=None, gamma_mean=0.9)
    with pytest.raises(MissingLocalModelError, match=next(iter(options))):
        select(strategy, bare, 3, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prototypes": "cosine"}, "prototypes = 'cosine' is not one of global, local, none"),
        ({"uncertainty": "least_confidence"}, "is not one of entropy, margin, least-confidence"),
        ({"gradient_probabilities": "local"}, "is not one of global, auto"),
        ({"kappa": 0.5}, "kappa = 0.5 must be at least 1"),
        ({"kappa": 1e308}, r"kappa = 1e\+308 is not allowed: it must be at most 1000000, because"),
        ({"kappa": float("inf")}, "kappa = inf"),
        ({"kappa": float("nan")}, "kappa = nan"),
    ],
)
def test_options_that_are_not_allowed(options, message):
    with pytest.raises(QueryOptionError, match=message):
        FairFAL(FairFALOptions(**options))
