"""The rules that every asynchronous strategy keeps."""

import threading

import numpy as np
import pytest
from flwr.app import ConfigRecord, MetricRecord
from flwr.serverapp.strategy import FedAvg
from hypothesis import given, settings
from hypothesis import strategies as st

from fedraw import ASYNCHRONOUS, FedBuff, FedRAW, build_strategy
from fedraw.clock import VirtualClock
from fedraw.delays import Constant, FromList, LogNormal, Pareto, Trace
from fedraw.errors import RunStoppedError, SettingError, StrategyError
from fedraw.staleness import Constant as NoDamping
from tests.fedraw.toy import (
    NodesOnly,
    OneMessageEach,
    arrays_of,
    check_accounts,
    linear_app,
    listed,
    number,
    of_kind,
    random_clock,
    shift_app,
    start,
    start_arrays,
)
from tests.inprocess import InProcessGrid

NAMES = list(ASYNCHRONOUS)
BUFFERED = [name for name in NAMES if ASYNCHRONOUS[name].buffered]


def build(name, **settings):
    """Build a strategy; FedAsync, ACE and ACED have no buffer size."""
    if name not in BUFFERED:
        settings.pop("buffer_size", None)
    return build_strategy(name, **settings)


# A strategy is the same under every rule: results, accounts, dtypes


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("coverage", [False, True])
def test_a_run_publishes_its_versions_and_accounts_for_every_update(name, coverage):
    log = []
    strategy = build(name, clock=random_clock(), buffer_size=3, concurrency=4, events=log)
    result = start(strategy, app=linear_app(coverage=coverage), clients=6, versions=8)
    assert [event.version for event in of_kind(log, "publish")] == list(range(1, 9))
    assert strategy.version == 8
    check_accounts(log, result.influence)
    got, sent = arrays_of(result.arrays), arrays_of(start_arrays())
    assert {key: a.dtype for key, a in got.items()} == {key: a.dtype for key, a in sent.items()}
    assert {key: a.shape for key, a in got.items()} == {key: a.shape for key, a in sent.items()}
    assert np.abs(got["weight"]).sum() > 0
    assert set(result.train_metrics_clientapp) == set(range(1, 9))
    assert set(result.train_metrics_clientapp[1]) == {"loss"}
    times = [event.time for event in log]
    assert times == sorted(times)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_accounts_hold_whatever_the_schedule(data):
    name = data.draw(st.sampled_from(NAMES))
    own = (
        {"keep": data.draw(st.sampled_from(["off", "newest", "freshest", "mean"]))}
        if name == "fedraw"
        else {}
    )
    log = []
    strategy = build(
        name,
        clock=random_clock(data.draw(st.integers(0, 99)), data.draw(st.sampled_from([0.3, 1.0]))),
        buffer_size=data.draw(st.integers(1, 6)),
        concurrency=data.draw(st.integers(1, 9)),
        max_staleness=data.draw(st.integers(0, 4))
        if name == "aced"
        else data.draw(st.sampled_from([None, 0, 2])),
        dispatch=data.draw(st.sampled_from(["available", "random"])),
        timing_only=True,
        events=log,
        **own,
    )
    result = start(strategy, grid=NodesOnly(data.draw(st.integers(2, 7))), versions=12)
    check_accounts(log, result.influence)
    assert len(of_kind(log, "publish")) == 12
    assert sum(result.influence["weights"].values()) >= 0


# Versions belong to the server


def test_a_client_that_is_first_dispatched_late_is_fresh():
    clock = VirtualClock(
        FromList(seconds={"site-0": [1.0], "site-1": [1.0], "site-2": [0.5]}),
        Trace(intervals={"site-2": [(50.25, float("inf"))]}),
    )
    log = []
    start(FedBuff(clock=clock, buffer_size=2, events=log), clients=3, versions=55)
    first = next(event for event in of_kind(log, "arrive") if event.site == "site-2")
    assert first.time == 50.75
    assert first.version == 50
    assert first.staleness == 0


def test_what_a_client_says_of_its_version_is_not_read():
    def lie(content, part, job):
        content["config"] = ConfigRecord({"server-round": 999, "version": -3})
        content["metrics"]["version"] = 999

    def run(reply):
        log = []
        result = start(FedBuff(clock=random_clock(), events=log), app=linear_app(reply=reply), versions=6)
        return log, arrays_of(result.arrays)["weight"].tolist()

    assert run(lie) == run(None)


def test_jobs_carry_round_and_job_number_and_never_share_a_config():
    grid = InProcessGrid(linear_app(), 3)
    config = ConfigRecord({"lr": 0.5})
    start(FedBuff(clock=random_clock()), grid=grid, versions=3, train_config=config)
    assert dict(config) == {"lr": 0.5}
    configs = [message.content["config"] for message in grid.sent]
    assert len({id(config) for config in configs}) == len(configs)
    assert configs[0]["server-round"] == 1
    assert all(config["lr"] == 0.5 for config in configs)
    jobs = [(m.metadata.dst_node_id, m.content["config"]["job"]) for m in grid.sent]
    assert len(set(jobs)) == len(jobs)


# The update


def run_flower(rounds, clients):
    strategy = FedAvg(fraction_evaluate=0.0)
    return strategy.start(InProcessGrid(linear_app(), clients), start_arrays(), num_rounds=rounds)


@pytest.mark.parametrize("name", ["fedbuff", "fedraw", "fedstaleweight", "ca2fl"])
def test_all_clients_at_once_are_fedavg(name):
    own = {"rarity_weight": 0.0} if name == "fedraw" else {}
    strategy = build_strategy(
        name, clock=VirtualClock(), concurrency=4, buffer_size=4, weigh_by="examples", **own
    )
    if name == "ca2fl":  # its correction of uneven weights is not FedAvg after the first version
        ours, flowers = start(strategy, versions=1), run_flower(1, 4)
    else:
        ours, flowers = start(strategy, versions=3), run_flower(3, 4)
    for key in ("weight", "bn.running_var"):
        ours_value, flowers_value = arrays_of(ours.arrays)[key], arrays_of(flowers.arrays)[key]
        np.testing.assert_allclose(ours_value, flowers_value, atol=1e-6, rtol=0)
    assert ours.influence["staleness"] == {"0": ours.influence["aggregated"]}


def test_the_same_changes_from_one_version_or_three_make_the_same_model():
    """The client's start does not matter without damping, only what it changed."""

    def run(clock):
        log = []
        app = shift_app(lambda part, job: 10.0**part if (part, job) in ((0, 2), (1, 1), (2, 0)) else 0.0)
        strategy = FedBuff(
            clock=clock, buffer_size=3, concurrency=3, staleness=NoDamping(), server_lr=3.0, events=log
        )
        result = start(strategy, app=app, clients=3, arrays=number(), versions=3)
        return arrays_of(result.arrays)["x"][0], of_kind(log, "aggregate")

    one, _ = run(listed(site_0=[1.0], site_1=[1.0], site_2=[1.0]))
    spread, aggregated = run(listed(site_0=[1.0], site_1=[1.5], site_2=[3.9]))
    assert {event.staleness for event in aggregated} != {0}
    assert one == pytest.approx(111.0)
    assert spread == pytest.approx(111.0)


def test_stale_clients_that_changed_nothing_leave_the_model_where_it_is():
    strategy = FedBuff(clock=random_clock(sigma=2.0), buffer_size=2)
    result = start(strategy, app=shift_app(lambda part, job: 0.0), arrays=number(5.0), versions=20)
    assert arrays_of(result.arrays)["x"].tolist() == [5.0]
    assert set(result.influence["staleness"]) != {"0"}


def test_a_uniformly_stale_buffer_is_damped_unless_asked_otherwise():
    # The two slow clients arrive together, each three versions old; everybody else changes nothing.
    def run(normalise):
        clock = listed(site_0=[1.0], site_1=[1.0], site_2=[3.5, 99.0], site_3=[3.5, 99.0])
        app = shift_app(lambda part, job: 1.0 if part > 1 else 0.0)
        strategy = FedBuff(clock=clock, buffer_size=2, normalise=normalise)
        return arrays_of(start(strategy, app=app, arrays=number(), versions=4).arrays)["x"][0]

    assert run("entries") == pytest.approx(0.5)
    assert run("buffer") == pytest.approx(0.5)
    assert run("weights") == pytest.approx(1.0)


def test_an_update_that_is_too_old_is_dropped_and_its_client_works_on():
    log = []
    clock = listed(site_0=[1.0], site_1=[1.0], site_2=[3.5, 1.0])
    strategy = FedBuff(clock=clock, buffer_size=2, max_staleness=2, events=log)
    result = start(strategy, clients=3, versions=6)
    (drop,) = of_kind(log, "drop")
    assert (drop.site, drop.time, drop.staleness, drop.reason) == ("site-2", 3.5, 3, "stale")
    assert result.influence["dropped"] == {"stale": 1}
    again = of_kind(log, "dispatch")
    assert [(e.time, e.version) for e in again if e.site == "site-2"][1] == (3.5, 3)
    check_accounts(log, result.influence)


@pytest.mark.parametrize("name", NAMES)
def test_running_variances_stay_positive_and_counters_take_the_largest(name):
    strategy = build(name, clock=random_clock(sigma=2.0), buffer_size=2, server_lr=1.0)
    result = start(strategy, versions=30)
    arrays = arrays_of(result.arrays)
    assert (arrays["bn.running_var"] > 0).all()
    assert arrays["bn.num_batches_tracked"].dtype == np.int64
    assert arrays["bn.num_batches_tracked"] % 5 == 0
    assert arrays["bn.num_batches_tracked"] > 0


def test_named_buffers_are_taken_as_such():
    strategy = FedBuff(clock=VirtualClock(), buffer_size=4, server_lr=3.0, buffer_keys=["weight"])
    mixed = arrays_of(start(strategy, versions=1).arrays)
    plain = arrays_of(start(FedBuff(clock=VirtualClock(), buffer_size=4), versions=1).arrays)
    np.testing.assert_allclose(mixed["weight"], plain["weight"], rtol=1e-5)  # a mix of values: no step of 3
    change = plain["bn.running_var"] - 1
    np.testing.assert_allclose(mixed["bn.running_var"] - 1, 3 * change, rtol=1e-5)  # not a buffer here


# Order of arrivals, flush and dispatch


def test_arrivals_of_one_instant_go_by_site_and_free_places_are_filled_after_it():
    log = []
    start(FedBuff(clock=VirtualClock(), buffer_size=3, concurrency=8, events=log), clients=8, versions=3)
    first = [e for e in log if e.time == 1.0]
    kinds = [e.kind for e in first]
    assert kinds[:14] == ["arrive"] * 3 + ["aggregate"] * 3 + ["publish"] + ["arrive"] * 3 + [
        "aggregate"
    ] * 3 + ["publish"]
    assert kinds[14:] == ["arrive"] * 2 + ["dispatch"] * 8
    assert [e.site for e in first if e.kind == "arrive"] == [f"site-{i}" for i in range(8)]
    assert {e.version for e in first if e.kind == "dispatch"} == {2}


def test_the_client_whose_arrival_made_a_version_gets_it():
    log = []
    clock = listed(site_0=[1.0], site_1=[1.3], site_2=[1.7])
    start(FedBuff(clock=clock, buffer_size=2, events=log), clients=3, versions=6)
    published = {e.time: e.version for e in of_kind(log, "publish")}
    for dispatch in of_kind(log, "dispatch"):
        if dispatch.time in published:
            assert dispatch.version == published[dispatch.time]


@pytest.mark.parametrize("evaluate", [0.0, 1.0])
def test_a_client_has_one_message_at_a_time(evaluate):
    grid = OneMessageEach(linear_app(), 5, workers=2)
    strategy = FedBuff(clock=random_clock(), concurrency=5, buffer_size=2, fraction_evaluate=evaluate)
    start(strategy, grid=grid, versions=12)
    assert not grid.working  # the nodes are free when the run is over


def test_one_slow_client_does_not_slow_the_versions_down():
    def times(slow):
        log = []
        clock = VirtualClock(Constant(speeds={"site-4": 0.01 if slow else 1.0}))
        strategy = FedBuff(clock=clock, buffer_size=4, concurrency=5, timing_only=True, events=log)
        start(strategy, grid=NodesOnly(5 if slow else 4), versions=50)
        return [event.time for event in of_kind(log, "publish")]

    assert times(slow=True) == times(slow=False)


def test_the_last_straggler_of_a_version_is_not_lost():
    log = []
    strategy = FedBuff(
        clock=listed(site_0=[1.0], site_1=[1.0], site_2=[20.5, 1.0]),
        buffer_size=2,
        staleness=NoDamping(),
        events=log,
        on_step=lambda s: kept.append(s._run.state.versions.kept()),
    )
    kept = []
    app = shift_app(lambda part, job: 1.0 if part == 2 else 0.0)
    result = start(strategy, app=app, clients=3, arrays=number(), versions=22)
    assert arrays_of(result.arrays)["x"][0] > 0
    assert max(len(versions) for versions in kept) <= 3  # the straggler's, the present one, one in between
    assert kept[-1][0] > 0  # version 0 was released when the straggler came in


@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_versions_are_kept_for_jobs_in_flight_and_no_longer(data):
    def look(strategy):
        run = strategy._run.state
        needed = {run.versions.current} | {job.version for job in run.jobs.values()}
        assert run.versions.kept() == sorted(needed)
        assert run.versions._records.keys() <= needed

    strategy = build(
        data.draw(st.sampled_from(NAMES)),
        clock=random_clock(data.draw(st.integers(0, 99)), sigma=2.0),
        buffer_size=data.draw(st.integers(1, 4)),
        concurrency=data.draw(st.integers(1, 9)),
        job_timeout=data.draw(st.sampled_from([None, 3.0])),
        timing_only=True,
        on_step=look,
    )
    start(strategy, grid=NodesOnly(7), versions=20)


# Who gets a free place


def test_a_free_place_goes_to_who_waits_longest_or_to_a_seeded_choice():
    def order(clients, **settings):
        log = []
        strategy = FedBuff(clock=VirtualClock(), concurrency=1, timing_only=True, events=log, **settings)
        start(strategy, grid=NodesOnly(clients), versions=150)
        return [event.site for event in of_kind(log, "dispatch")]

    assert order(3)[:7] == ["site-0", "site-1", "site-2"] * 2 + ["site-0"]
    drawn = order(3, dispatch="random", seed=1)
    assert drawn == order(3, dispatch="random", seed=1)
    assert drawn != order(3, dispatch="random", seed=2)
    counts = np.unique(drawn, return_counts=True)[1]
    np.testing.assert_allclose(counts / len(drawn), 1 / 3, atol=0.07)  # 600 draws: 3.6 standard deviations


# Evaluation


def test_a_client_that_does_not_answer_gets_no_message_to_evaluate():
    held = threading.Event()

    class Held(OneMessageEach):
        """A grid whose first node answers its first job after the evaluation only."""

        def pull_messages(self, message_ids):
            ids = [i for i in message_ids if held.is_set() or self.working.get(i) != 1000]
            return super().pull_messages(ids)

    clock = listed(site_0=[9.0], site_1=[1.0], site_2=[1.0])
    strategy = FedBuff(clock=clock, buffer_size=2, fraction_evaluate=1.0)
    strategy.on_step = lambda strategy: held.set() if strategy.version else None
    result = start(strategy, grid=Held(linear_app(), 3, workers=3), versions=2, timeout=0.3)
    assert set(result.evaluate_metrics_clientapp) == {1, 2}
    assert result.influence["failed"] == {}


@pytest.mark.parametrize("dispatch", ["available", "random"])
def test_evaluation_changes_neither_log_nor_arrays(dispatch):
    def run(every, share):
        log, seen = [], []
        strategy = FedBuff(
            clock=random_clock(),
            concurrency=3,
            dispatch=dispatch,
            evaluate_every=every,
            fraction_evaluate=share,
            events=log,
        )

        def evaluate(version, arrays):
            seen.append(version)
            return MetricRecord({"sum": float(arrays_of(arrays)["weight"].sum())})

        result = start(strategy, versions=7, evaluate_fn=evaluate if every else None)
        return log, arrays_of(result.arrays)["weight"].tolist(), seen, result

    always = run(1, 0.5)
    seldom = run(3, 1.0)
    never = run(100, 0.0)
    assert always[:2] == seldom[:2] == never[:2]
    assert always[2] == list(range(8))
    assert seldom[2] == [0, 3, 6, 7]
    assert set(seldom[3].evaluate_metrics_serverapp) == {0, 3, 6, 7}
    assert set(seldom[3].evaluate_metrics_clientapp) == {3, 6, 7}
    assert set(seldom[3].evaluate_metrics_clientapp[3]) == {"loss"}
    assert never[3].evaluate_metrics_clientapp == {}


# Workers, nodes and names do not matter


@pytest.mark.parametrize("name", NAMES)
def test_any_number_of_workers_gives_the_same_run(name):
    def run(workers):
        log = []
        strategy = build(name, clock=random_clock(), concurrency=5, events=log)
        result = start(strategy, clients=6, workers=workers, app=linear_app(coverage=True), versions=8)
        return log, {key: a.tolist() for key, a in arrays_of(result.arrays).items()}

    assert run(1) == run(2)


def test_names_of_nodes_make_a_run_independent_of_their_ids():
    class Renumbered(InProcessGrid):
        """The same clients under ids in the opposite order."""

        def __init__(self, app, clients):
            super().__init__(app, clients)
            contexts = list(self.contexts.values())
            self.contexts = {2000 - i: context for i, context in enumerate(contexts)}
            for node, context in self.contexts.items():
                context.node_id = node
            self.locks = {node: self.locks[1000 + i] for i, node in enumerate(self.contexts)}

    def run(grid, sites):
        log = []
        strategy = FedBuff(clock=random_clock(), concurrency=3, dispatch="random", sites=sites, events=log)
        return log, arrays_of(start(strategy, grid=grid, versions=5).arrays)["weight"].tolist()

    names = [f"hospital {i}" for i in range(4)]
    first = run(InProcessGrid(linear_app(), 4), {1000 + i: name for i, name in enumerate(names)})
    second = run(Renumbered(linear_app(), 4), {2000 - i: name for i, name in enumerate(names)})
    assert first == second
    assert {event.site for event in of_kind(first[0], "dispatch")} == set(names)


# Sizes that do not fit, and heavy tails


@pytest.mark.parametrize("name", NAMES)
def test_fewer_clients_than_places_and_a_buffer_above_the_clients_make_progress(name):
    strategy = build(name, clock=random_clock(), buffer_size=7, concurrency=50)
    assert start(strategy, clients=2, versions=3).influence["flushes"] == 3


def test_too_few_nodes_are_a_clear_error_that_keeps_the_arrays():
    strategy = FedBuff(clock=VirtualClock(), min_available_nodes=5, node_timeout=0.05)
    with pytest.raises(RunStoppedError, match=r"2 nodes are connected .* min_available_nodes is 5") as caught:
        start(strategy, clients=2)
    assert arrays_of(caught.value.result.arrays)["weight"].tolist() == [0.0, 0.0, 0.0]


def test_nobody_left_is_a_clear_error_that_keeps_what_was_aggregated():
    clock = VirtualClock(Constant(), Trace(intervals={f"site-{i}": [(0.0, 3.5)] for i in range(4)}))
    with pytest.raises(RunStoppedError, match="no client can take a job at version 4 of 99") as caught:
        start(FedBuff(clock=clock), versions=99)
    assert np.abs(arrays_of(caught.value.result.arrays)["weight"]).sum() > 0
    assert caught.value.result.influence["flushes"] == 4


@pytest.mark.parametrize("delays", [Pareto(shape=0.8), LogNormal(sigma=3.0)])
def test_a_thousand_clients_with_heavy_tails_never_stall(delays):
    log = []
    strategy = FedRAW(
        clock=VirtualClock(delays), buffer_size=20, concurrency=200, timing_only=True, events=log, seed=3
    )
    result = start(strategy, grid=NodesOnly(1000), versions=200)
    times = [event.time for event in log]
    assert times == sorted(times)
    assert len(of_kind(log, "publish")) == 200
    check_accounts(log, result.influence)


def test_timing_only_has_the_schedule_of_the_real_run():
    def run(**settings):
        log = []
        start(FedRAW(clock=random_clock(), concurrency=3, events=log, **settings), versions=9)
        return log

    assert run(timing_only=True) == run()


# Settings


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"buffer_size": 0}, "buffer_size is 0"),
        ({"concurrency": 0}, "concurrency is 0"),
        ({"server_lr": float("nan")}, "server_lr is nan"),
        ({"weigh_by": "size"}, "weigh_by is 'size'"),
        ({"normalise": "all"}, "normalise is 'all'"),
        ({"dispatch": "fifo"}, "dispatch is 'fifo'"),
        ({"max_staleness": -1}, "max_staleness is -1"),
        ({"job_timeout": 0.0}, "job_timeout is 0.0"),
        ({"fraction_evaluate": 2.0}, "fraction_evaluate is 2.0"),
        ({"timing_only": True}, "VirtualClock"),
    ],
)
def test_settings_outside_their_range_are_refused(settings, match):
    with pytest.raises(SettingError, match=match):
        FedBuff(**settings)


def test_two_nodes_of_one_name_are_refused():
    with pytest.raises(SettingError, match="both named 'a'"):
        start(FedBuff(clock=VirtualClock(), sites={1000: "a", 1001: "a"}), clients=2)


def test_the_interface_of_rounds_is_refused():
    with pytest.raises(StrategyError, match="LocalDpMod"):
        FedBuff().configure_train(1, start_arrays(), ConfigRecord(), InProcessGrid(linear_app(), 2))
    with pytest.raises(StrategyError, match="start"):
        FedBuff().aggregate_train(1, [])
