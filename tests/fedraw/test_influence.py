"""Measures of influence, by hand and over a skewed run."""

import json
import math

import pytest

from fedraw import FedBuff, FedRAW
from fedraw.clock import VirtualClock
from fedraw.delays import LogNormal, RareSlow
from fedraw.run.influence import Influence
from tests.fedraw.toy import NodesOnly, start


def two_flushes():
    influence = Influence()
    influence.flush(1, 1.0, ["a", "b"], [0, 2], {"a": 0.5, "b": 0.25}, {"b"}, 0.1)
    influence.replaced["a"] += 3
    influence.flush(2, 2.0, ["a", "a"], [0, 0], {"a": 1.0}, {"b"}, 0.3)
    return influence


def test_summary_by_hand():
    summary = two_flushes().summary(["a", "b", "c"], {"b"}, left_over=1, in_flight=2)
    assert summary["participations"] == {"a": 3, "b": 1, "c": 0}
    assert summary["weights"] == {"a": 1.5, "b": 0.25, "c": 0.0}
    assert summary["staleness"] == {"0": 3, "2": 1}
    assert summary["rare_share_of_clients"] == pytest.approx(1 / 3)
    assert summary["rare_share_of_updates"] == pytest.approx(1 / 4)
    assert summary["rare_share_of_weight"] == pytest.approx(1 / 7)
    assert summary["participation_bias"] == pytest.approx(3 / 4)
    assert summary["aggregation_bias"] == pytest.approx(4 / 7)
    assert summary["seconds_per_flush"] == pytest.approx(0.2)
    assert summary["replaced_per_flush"] == 1.5
    assert (summary["left_over"], summary["abandoned_jobs"], summary["aggregated"]) == (1, 2, 4)


def test_flushes_are_kept_one_by_one():
    first, second = two_flushes().flushes
    assert (first.rare_updates, first.rare_weight) == (0.5, pytest.approx(1 / 3))
    assert (first.replaced, second.replaced) == (0, 3)
    assert (first.mean_staleness, second.size, second.rare_weight) == (1.0, 2, 0.0)


def test_without_a_rare_group_there_is_no_bias():
    influence = Influence()
    influence.flush(1, 1.0, ["a"], [0], {"a": 1.0}, (), 0.1)
    summary = influence.summary(["a"], (), 0, 0)
    assert summary["participation_bias"] is None
    assert summary["aggregation_bias"] is None
    assert math.isnan(influence.flushes[0].rare_weight)
    json.dumps(summary, allow_nan=False)
    state = json.loads(json.dumps(influence.state(), allow_nan=False))
    assert math.isnan(Influence.restored(state).flushes[0].rare_weight)


def test_slow_rare_clients_lose_and_fedraw_makes_up_for_it():
    rare = {"site-00", "site-01", "site-02"}
    sites = [f"site-{i:02d}" for i in range(12)]
    coverage = {site: [1, int(site in rare)] for site in sites}

    def summary(strategy_class, **own):
        clock = VirtualClock(RareSlow(rare_sites=rare, slow_factor=4.0, sigma=0.3))
        strategy = strategy_class(
            clock=clock, buffer_size=4, concurrency=9, timing_only=True, label_coverage=coverage, **own
        )
        return start(strategy, grid=NodesOnly(12), versions=200).influence

    drowned = summary(FedBuff)
    one_place = summary(FedRAW, rarity_weight=0.0)
    weighed = summary(FedRAW, rarity_weight=4.0, rarity="max")
    assert drowned["rare_clients"] == sorted(rare)
    assert drowned["participation_bias"] < 0.6
    assert drowned["aggregation_bias"] < 1.0
    assert one_place["participation_bias"] >= drowned["participation_bias"]
    assert weighed["aggregation_bias"] > 1.5


def test_one_place_a_client_matters_where_speeds_are_skewed():
    def summary(keep):
        clock = VirtualClock(LogNormal(sigma=0.2, speeds={"site-0": 20.0}))
        strategy = FedRAW(
            clock=clock, buffer_size=4, concurrency=6, keep=keep, timing_only=True, rare_sites={"site-5"}
        )
        return start(strategy, grid=NodesOnly(6), versions=100).influence

    assert summary("newest")["replaced_per_flush"] > 3
    assert summary("off")["participation_bias"] < 0.4
    assert summary("newest")["participation_bias"] > 0.8
