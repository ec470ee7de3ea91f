"""What each strategy makes of a buffer, by numbers computed by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedraw import ACE, ACED, CA2FL, FedAsync, FedBuff, FedRAW, FedStaleWeight
from fedraw.clock import VirtualClock
from fedraw.errors import SettingError
from fedraw.run.buffer import Entry
from fedraw.staleness import Constant, Polynomial
from tests.fedraw.toy import (
    arrays_of,
    linear_app,
    listed,
    number,
    of_kind,
    random_clock,
    shift_app,
    start,
)

WEIGHTED = [FedBuff, FedRAW, FedStaleWeight, CA2FL]


def x(result):
    return arrays_of(result.arrays)["x"][0]


def powers(part, job):
    return 10.0**part


def entry(site, examples=1.0, **more):
    return Entry(site, 0, 0, 0, examples=examples, **more)


def test_fedasync_mixes_the_clients_model_by_its_staleness():
    # site-1 arrives at 2.5 with 1 + 10 after two versions of site-0: s = 3^-0.5.
    log = []
    strategy = FedAsync(clock=listed(site_0=[1.0], site_1=[2.5]), mixing=0.5, events=log)
    result = start(strategy, app=shift_app(powers), clients=2, arrays=number(1.0), versions=3)
    after_two = 0.5 * (0.5 * 1 + 0.5 * 2) + 0.5 * (1.5 + 1)
    a = 0.5 * 3**-0.5
    assert x(result) == pytest.approx((1 - a) * after_two + a * 11)
    assert [e.staleness for e in of_kind(log, "aggregate")] == [0, 0, 2]
    assert of_kind(log, "aggregate")[2].weight == pytest.approx(a)


def test_fedasync_has_a_mixing_and_nothing_else():
    with pytest.raises(SettingError, match="mixing is 0"):
        FedAsync(mixing=0)
    with pytest.raises(SettingError, match="server_lr is 2"):
        FedAsync(server_lr=2.0)


def test_fedbuff_weighs_uniformly_and_damps():
    # Versions at 1 (of site-0 and site-1) and at 2; site-2 arrives at 1.5 one version old.
    clock = listed(site_0=[1.0], site_1=[1.0], site_2=[1.5, 9.0])
    result = start(
        FedBuff(clock=clock, buffer_size=2, server_lr=0.5),
        app=shift_app(powers),
        clients=3,
        arrays=number(),
        versions=2,
    )
    assert x(result) == pytest.approx(0.5 * (11 / 2) + 0.5 * (100 * 2**-0.5 / 2 + 1 / 2))


def test_examples_can_be_the_weights():
    strategy = FedBuff(clock=VirtualClock(), buffer_size=2, weigh_by="examples")
    weights = strategy.coefficients([entry("a", 1), entry("b", 3)], [0, 3])
    np.testing.assert_allclose(weights, [0.25, 0.75 * 0.5])
    np.testing.assert_allclose(strategy.coefficients([entry("a", 0), entry("b", 0)], [0, 0]), [0.5, 0.5])


def test_ca2fl_corrects_by_the_last_update_of_everybody():
    # Version 1 of a (1) and b (10), H = 0. Version 2 of a (2) and b (20), H = (1 + 10 + 0) / 3.
    clock = listed(site_0=[1.0], site_1=[1.0], site_2=[9.0])
    app = shift_app(lambda part, job: (job + 1) * 10.0**part)
    result = start(CA2FL(clock=clock, buffer_size=2), app=app, clients=3, arrays=number(), versions=2)
    assert x(result) == pytest.approx(11 / 2 + 11 / 3 + ((2 - 1) + (20 - 10)) / 2)


def test_ace_steps_with_the_mean_of_everybodys_last_update():
    # First step at 2 when site-2 came: site-0's second update took the place of its first.
    clock = listed(site_0=[0.9], site_1=[1.5], site_2=[2.0])
    app = shift_app(lambda part, job: (job + 1) * 10.0**part)
    log = []
    result = start(ACE(clock=clock, events=log), app=app, clients=3, arrays=number(), versions=2)
    first = (2 + 10 + 100) / 3
    assert x(result) == pytest.approx(first + (3 + 10 + 100) / 3)
    assert [e.time for e in of_kind(log, "publish")] == [2.0, pytest.approx(2.7)]
    assert result.influence["weights"] == pytest.approx(dict.fromkeys(["site-0", "site-1", "site-2"], 2 / 3))
    assert result.influence["replaced"] == 1


def test_aced_leaves_out_what_is_too_old():
    clock = listed(site_0=[1.0], site_1=[1.0], site_2=[1.0, 99.0])
    result = start(
        ACED(clock=clock, max_staleness=2), app=shift_app(powers), clients=3, arrays=number(), versions=5
    )
    # Versions 1 (all at 1.0), 2 and 3 (at 2.0) have site-2's update of version 0 while it is at most 2 old.
    assert x(result) == pytest.approx(3 * 111 / 3 + 2 * 11 / 2)
    with pytest.raises(SettingError, match="max_staleness is None"):
        ACED(max_staleness=None)


def test_fedstaleweight_weighs_by_mean_staleness():
    strategy = FedStaleWeight()
    strategy.begin()
    first = strategy.coefficients([entry("a"), entry("b")], [0, 2])
    np.testing.assert_allclose(first, [1 / 4, 3 / 4])
    second = strategy.coefficients([entry("a"), entry("b")], [0, 0])
    np.testing.assert_allclose(second, [1 / 3, 2 / 3])


def test_fedraw_weighs_rare_clients_more():
    coverage = {"a": [1, 0], "b": [1, 0], "c": [1, 1], "d": [1, 0]}
    mean = FedRAW(rarity_weight=4.0, rarity="mean", staleness=Constant(), label_coverage=coverage)
    np.testing.assert_allclose(mean.coefficients([entry("a"), entry("c")], [0, 0]), [1 / 4, 3 / 4])
    largest = FedRAW(rarity_weight=4.0, rarity="max", staleness=Constant(), label_coverage=coverage)
    np.testing.assert_allclose(largest.coefficients([entry("a"), entry("c")], [0, 0]), [1 / 6, 5 / 6])
    by_examples = FedRAW(rarity_weight=4.0, rarity="mean", weigh_by="examples", label_coverage=coverage)
    np.testing.assert_allclose(by_examples.weights([entry("a", 3), entry("c", 1)], [0, 0]), [1 / 2, 1 / 2])


def test_fedraw_learns_coverage_from_replies_and_warns_once_of_what_is_unknown(caplog):
    strategy = FedRAW(clock=random_clock(), rarity="max", rarity_weight=2.0)
    log = []
    strategy.events = log
    start(strategy, app=linear_app(coverage=True), clients=4, versions=6)
    assert strategy.coverage.rare_sites() == {"site-0"}
    weights = {e.site: e.weight / (1 + e.staleness) ** -0.5 for e in of_kind(log, "aggregate")}
    assert weights["site-0"] > weights["site-2"] > weights["site-1"] == weights["site-3"]
    with caplog.at_level("WARNING", "flwr.fedraw"):
        result = start(FedRAW(clock=random_clock()), clients=4, versions=6)
    assert caplog.text.count("is not known") == 1
    assert result.influence["participation_bias"] is None


def test_fedraw_settings_are_checked():
    for settings_, match in (
        ({"keep": "oldest"}, "keep is 'oldest'"),
        ({"rarity": "sum"}, "rarity is 'sum'"),
        ({"label_source": "guess"}, "label_source is 'guess'"),
        ({"rarity_weight": -1.0}, "rarity_weight is -1"),
    ):
        with pytest.raises(SettingError, match=match):
            FedRAW(**settings_)


def test_fedraw_finds_the_classifier_or_says_that_there_is_none():
    model = {"a.weight": np.ones((4, 4)), "b.weight": np.eye(2, 4), "b.bias": np.array([1.0, -1.0])}
    strategy = FedRAW(label_source="updates")
    strategy.received(entry("a", deltas=model), {})
    assert strategy.coverage.bits("a") == (1, 1)
    strategy = FedRAW(label_source="updates", classifier=("b.weight", ""))
    strategy.received(entry("a", deltas=model | {"b.weight": -np.ones((2, 4))}), {})
    assert strategy.coverage.bits("a") == (0, 0)
    strategy.received(entry("a", deltas=model | {"b.weight": np.array([[1.0] * 4, [-1.0] * 4])}), {})
    assert strategy.coverage.bits("a") == (1, 0)
    strategy.received(entry("a", deltas=model | {"b.weight": -np.ones((2, 4))}), {})
    assert strategy.coverage.bits("a") == (1, 0)  # a label once seen is kept
    with pytest.raises(SettingError, match="classifier names 'c'"):
        FedRAW(label_source="updates", classifier=("c", "")).received(entry("a", deltas=model), {})
    with pytest.raises(SettingError, match="name its last layer"):
        FedRAW(label_source="updates").received(entry("a", deltas={"x": np.ones(3)}), {})


@pytest.mark.parametrize("coverage", [False, True])
def test_fedraw_without_rarity_and_duplicates_is_fedbuff(coverage):
    def run(strategy_class, **own):
        log = []
        strategy = strategy_class(clock=random_clock(), concurrency=3, events=log, **own)
        result = start(strategy, app=linear_app(coverage=coverage), versions=9)
        return log, {key: a.tolist() for key, a in arrays_of(result.arrays).items()}

    assert run(FedRAW, rarity_weight=0.0, keep="off") == run(FedBuff)
    # One place a client changes nothing where no client is faster than the buffer.
    equal = {"clock": VirtualClock(), "buffer_size": 4}
    one, other = FedRAW(rarity_weight=0.0, **equal), FedBuff(**equal)
    assert arrays_of(start(one, versions=4).arrays)["weight"].tolist() == (
        arrays_of(start(other, versions=4).arrays)["weight"].tolist()
    )


@given(data=st.data())
@settings(max_examples=60, deadline=None)
@pytest.mark.parametrize("kind", WEIGHTED)
def test_weights_are_finite_and_sum_to_one_in_any_buffer_and_any_order(kind, data):
    size = data.draw(st.integers(1, 8))
    labels = data.draw(st.sampled_from([0, 1, 3]))
    sites = [f"s{i}" for i in range(size)]
    examples = data.draw(st.lists(st.sampled_from([0.0, 1.0, 7.0, 1e9, None]), min_size=size, max_size=size))
    taus = data.draw(st.lists(st.integers(0, 1000), min_size=size, max_size=size))
    bits = st.lists(st.integers(0, 1), min_size=labels, max_size=labels)
    own = {"staleness": Constant(), "weigh_by": data.draw(st.sampled_from(["uniform", "examples"]))}
    if kind is FedRAW:
        own |= {"rarity": data.draw(st.sampled_from(["mean", "max"]))}
        own |= {"rarity_weight": data.draw(st.sampled_from([0.0, 1.0, 1e6]))}
        if labels:
            own["label_coverage"] = {
                site: data.draw(bits) for site in sites[: data.draw(st.integers(0, size))]
            }
    entries = [entry(site, number_) for site, number_ in zip(sites, examples, strict=True)]

    def weights(order):
        strategy = kind(**own)
        strategy.begin()
        return strategy.coefficients([entries[i] for i in order], [taus[i] for i in order])

    straight = weights(range(size))
    assert np.isfinite(straight).all()
    assert (straight >= 0).all()
    assert straight.sum() == pytest.approx(1.0)
    order = data.draw(st.permutations(range(size)))
    np.testing.assert_allclose(weights(order), straight[list(order)], rtol=1e-12)


def test_no_memory_for_last_updates_gives_the_same_run():
    for strategy in (CA2FL, ACE):
        runs = [
            start(strategy(clock=random_clock(), memory_limit=limit), versions=12) for limit in (0, 20, 2**30)
        ]
        weights = [arrays_of(run.arrays)["weight"].tolist() for run in runs]
        assert weights[0] == weights[1] == weights[2]


@pytest.mark.parametrize("order", ["site_0", "site_2"])
def test_the_order_of_arrival_within_a_buffer_is_irrelevant(order):
    seconds = {"site_0": [1.0], "site_1": [1.2], "site_2": [1.4], order: [1.3]}
    strategy = FedBuff(clock=listed(**seconds), buffer_size=3, staleness=Polynomial(0.5))
    app = shift_app(lambda part, job: 0.1 * 3**part)
    result = start(strategy, app=app, clients=3, arrays=number(), versions=1)
    same = FedBuff(clock=VirtualClock(), buffer_size=3)
    assert x(result) == x(start(same, app=app, clients=3, arrays=number(), versions=1))
