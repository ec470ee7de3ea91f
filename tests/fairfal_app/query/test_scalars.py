import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fairfal_app.query.errors import QueryInputError, QueryOptionError
from fairfal_app.query.scalars import (
    balanced_prior,
    choose_query_model,
    client_scalars,
    discrepancy,
    gamma,
    mean_gamma,
    model_score,
)
from tests.fairfal_app.query.examples import predictions

shares = arrays(np.float64, 5, elements=st.floats(0, 1))
unit = st.floats(0, 1)


def test_hand_worked_priors(cases):
    case = cases["balanced_prior"]
    prior = balanced_prior(np.array(case["probabilities"]), np.array(case["labels"]))
    np.testing.assert_allclose(prior, case["prior"], atol=1e-12)


def test_hand_worked_scalars(cases):
    full, equality = cases["scalars"]["cases"]
    prior_global, prior_local = np.array(full["prior_global"]), np.array(full["prior_local"])
    assert gamma(prior_global, np.array(full["labelled_classes"])) == pytest.approx(full["gamma"])
    d = discrepancy(prior_global, prior_local)
    assert d == pytest.approx(full["d"])
    for then in full["then"]:
        s = model_score(d, then["gamma_mean"])
        assert s == pytest.approx(then["s"])
        assert choose_query_model("adaptive", s) == then["query_model"]
    s = model_score(equality["d"], equality["gamma_mean"])
    assert s == equality["s"]
    assert choose_query_model("adaptive", s) == equality["query_model"]


def test_gamma_is_over_labelled_classes_and_d_over_all_classes():
    prior_global, prior_local = np.array([0.5, 0.25, 0.25, 0.0]), np.array([0.5, 0.25, 0.0, 0.25])
    assert gamma(prior_global, np.array([0, 1])) == 0.5
    assert gamma(prior_global, np.array([0, 1, 3])) == 0
    assert discrepancy(prior_global, prior_local) == 0.5


def test_every_present_class_weighs_alike_whatever_its_count():
    probabilities, labels = np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([0, 1])
    rows = np.array([0, 0, 0, 0, 1])
    once, often = balanced_prior(probabilities, labels), balanced_prior(probabilities[rows], labels[rows])
    np.testing.assert_allclose(once, [0.55, 0.45])
    np.testing.assert_allclose(often, once)


def test_one_labelled_class_has_gamma_one():
    assert gamma(np.array([0.0, 1.0]), np.array([0, 0])) == 1
    assert gamma(np.array([0.1, 0.9]), np.array([1])) == 1


def test_priors_that_underflow():
    assert gamma(np.array([0.0, 0.0, 1.0]), np.array([0, 1])) == 0
    assert discrepancy(np.array([0.0, 1.0]), np.array([0.0, 1.0])) == 0


@pytest.mark.parametrize("function", [lambda: balanced_prior(np.ones((0, 2)), np.zeros(0, int))])
def test_an_empty_labelled_set_has_no_prior(function):
    with pytest.raises(QueryInputError, match="labelled set is empty"):
        function()
    with pytest.raises(QueryInputError, match="labelled set is empty"):
        gamma(np.array([0.5, 0.5]), np.zeros(0, int))


def test_mean_gamma_is_unweighted_over_the_clients_that_report_one():
    assert mean_gamma([0.2, 0.4, 0.9]) == pytest.approx(0.5)
    assert mean_gamma([]) == 1


@given(st.lists(unit, min_size=1, max_size=12), st.randoms())
def test_mean_gamma_does_not_depend_on_the_order_of_clients(gammas, random):
    shuffled = random.sample(gammas, len(gammas))
    assert mean_gamma(shuffled) == mean_gamma(gammas)
    assert min(gammas) <= mean_gamma(gammas) <= max(gammas) or np.isclose(mean_gamma(gammas), gammas[0])


@pytest.mark.parametrize("wrong", [float("nan"), -0.1, 1.5])
def test_a_gamma_out_of_range_is_refused(wrong):
    with pytest.raises(QueryInputError, match="0 to 1"):
        mean_gamma([0.5, wrong])


@given(shares, shares)
def test_ranges(prior_global, prior_local):
    labels = np.array([0, 2, 3])
    assert 0 <= gamma(prior_global, labels) <= 1
    d = discrepancy(prior_global, prior_local)
    assert 0 <= d <= 1
    assert d == discrepancy(prior_local, prior_global)
    assert discrepancy(prior_global, prior_global) == 0


@given(unit, unit)
def test_the_adaptive_rule_is_strict_and_the_opposite_rule_its_negation(d, gamma_mean):
    s = model_score(d, gamma_mean)
    assert 0 <= s <= 1
    assert choose_query_model("adaptive", s) == ("global" if s > 0.75 else "local")
    assert {choose_query_model("adaptive", s), choose_query_model("opposite", s)} == {"global", "local"}


@pytest.mark.parametrize(
    ("rule", "score", "delta", "model"),
    [
        ("adaptive", 0.75, 0.75, "local"),
        ("adaptive", np.nextafter(0.75, 1), 0.75, "global"),
        ("adaptive", 0.7, 0.65, "global"),
        ("opposite", 0.75, 0.75, "global"),
        ("opposite", 0.9, 0.75, "local"),
        ("global", None, 0.75, "global"),
        ("local", None, 0.75, "local"),
    ],
)
def test_rules(rule, score, delta, model):
    assert choose_query_model(rule, score, delta) == model


def test_rules_that_cannot_be_followed():
    with pytest.raises(QueryOptionError, match="'best' is not allowed: use adaptive, global"):
        choose_query_model("best", 0.5)
    for score in (None, float("nan")):
        with pytest.raises(QueryInputError, match=r"s = .* is not allowed"):
            choose_query_model("adaptive", score)


def test_scalars_of_a_client():
    labels = np.array([0, 0, 1])
    seen_by_global = predictions([[0.6, 0.2, 0.2], [0.4, 0.4, 0.2], [0.2, 0.6, 0.2]], np.zeros((3, 2)))
    seen_by_local = predictions([[1, 0, 0], [1, 0, 0], [0, 1, 0]], np.zeros((3, 5)))
    scalars = client_scalars(seen_by_global, seen_by_local, labels)
    # Priors: global (0.35, 0.45, 0.2), local (0.5, 0.5, 0).
    assert scalars.gamma == pytest.approx(0.35 / 0.45)
    assert scalars.discrepancy == pytest.approx((0.15 / 0.85 + 0.05 / 0.95 + 1) / 3)
    assert client_scalars(seen_by_global, None, labels).discrepancy is None


def test_a_prediction_that_is_not_finite_is_named():
    bad = predictions([[0.5, 0.5], [float("nan"), 0.5]], np.zeros((2, 1)))
    fine = predictions([[0.5, 0.5], [0.5, 0.5]], np.zeros((2, 1)))
    with pytest.raises(QueryInputError, match=r"labelled_local.probabilities\[1, 0\] = nan"):
        client_scalars(fine, bad, np.array([0, 1]))
