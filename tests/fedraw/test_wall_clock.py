"""Runs in real time: arrivals as they come."""

import threading

import numpy as np
import pytest
from flwr.app import MetricRecord

from fedraw import ASYNCHRONOUS, FedBuff, FedRAW
from fedraw.clock import WallClock
from fedraw.errors import RunStoppedError, SettingError
from tests.fedraw.toy import OneMessageEach, arrays_of, check_accounts, linear_app, of_kind, start
from tests.inprocess import InProcessGrid


class AllAtOnce(InProcessGrid):
    """A grid whose first replies come in one poll, all of them."""

    def __init__(self, clients):
        super().__init__(linear_app(), clients, workers=clients)
        self.clients = clients

    def pull_messages(self, message_ids):
        asked = list(message_ids)
        if len(self.sent) <= self.clients and not all(self.replies[i].done() for i in asked):
            return []
        return super().pull_messages(reversed(asked))


@pytest.mark.parametrize("poll", [0.0005, 0.02])
def test_eight_replies_of_one_poll_make_two_versions_of_three_and_leave_two(poll):
    log = []
    strategy = FedBuff(clock=WallClock(poll, poll), buffer_size=3, concurrency=8, events=log)
    start(strategy, grid=AllAtOnce(8), versions=3)
    first = log[8 : log.index(of_kind(log, "dispatch")[8])]
    triple = ["arrive"] * 3 + ["aggregate"] * 3 + ["publish"]
    assert [event.kind for event in first] == triple * 2 + ["arrive"] * 2
    assert [e.site for e in first if e.kind == "arrive"] == [f"site-{i}" for i in range(8)]
    assert {e.version for e in of_kind(log, "dispatch")[8:16]} == {2}
    assert {e.staleness for e in first if e.version == 2 and e.kind == "aggregate"} == {1}


@pytest.mark.parametrize("name", list(ASYNCHRONOUS))
def test_every_strategy_runs_with_one_message_a_client(name):
    log = []
    strategy = ASYNCHRONOUS[name](clock=WallClock(0.001, 0.01), events=log)
    result = start(strategy, grid=OneMessageEach(linear_app(coverage=True), 5, workers=3), versions=6)
    check_accounts(log, result.influence)
    assert strategy.version == 6
    assert np.isfinite(arrays_of(result.arrays)["weight"]).all()


def test_the_server_evaluates_in_a_thread_of_its_own_and_clients_at_the_end():
    threads = {}

    def evaluate(version, arrays):
        threads[version] = threading.current_thread()
        return MetricRecord({"sum": float(arrays_of(arrays)["weight"].sum())})

    strategy = FedBuff(clock=WallClock(0.001, 0.01), fraction_evaluate=1.0, evaluate_every=2)
    grid = OneMessageEach(linear_app(), 4, workers=2)
    result = start(strategy, grid=grid, versions=5, evaluate_fn=evaluate)
    assert set(threads) == {0, 2, 4, 5} == set(result.evaluate_metrics_serverapp)
    assert threading.current_thread() not in threads.values()
    assert set(result.evaluate_metrics_clientapp) <= {5}


def test_an_error_of_the_evaluation_is_raised():
    def evaluate(version, arrays):
        raise ZeroDivisionError("evaluation")

    with pytest.raises(ZeroDivisionError, match="evaluation"):
        start(FedBuff(clock=WallClock(0.001, 0.01)), versions=5, evaluate_fn=evaluate)


class Changing(InProcessGrid):
    """A grid whose nodes come and go: ``here(pushed)`` are those connected after so many messages."""

    def __init__(self, clients, here):
        super().__init__(linear_app(), clients)
        self.here = here

    def get_node_ids(self):
        return self.here(len(self.sent))


def test_a_node_that_joins_gets_work(monkeypatch):
    monkeypatch.setattr("fedraw.run.loop.NODE_POLL", 0.0)
    log = []
    grid = Changing(3, lambda sent: [1000, 1001] if sent < 6 else [1000, 1001, 1002])
    start(FedBuff(clock=WallClock(0.001, 0.01), events=log), grid=grid, versions=8)
    jobs = [event.job for event in of_kind(log, "arrive") if event.site == "site-2"]
    assert jobs[:2] == [0, 1]


@pytest.mark.parametrize("answered", [False, True])
def test_the_job_of_a_node_that_was_started_again_is_lost_unless_it_answered(monkeypatch, answered):
    monkeypatch.setattr("fedraw.run.loop.NODE_POLL", 0.0)

    class StartedAgain(Changing):
        """A grid where site b gets another node, and the reply of its first one waits until then."""

        def pull_messages(self, message_ids):
            new = 1002 in self.get_node_ids()
            first = self.sent[1]
            assert first.metadata.dst_node_id == 1001
            asked = [i for i in message_ids if i != first.metadata.message_id or (new and answered)]
            return super().pull_messages(asked)

    log = []
    grid = StartedAgain(3, lambda sent: [1000, 1001] if sent < 6 else [1000, 1002])
    sites = {1000: "a", 1001: "b", 1002: "b"}
    strategy = FedBuff(clock=WallClock(0.001, 0.01), sites=sites, retry_after=1e-3, events=log)
    result = start(strategy, grid=grid, versions=8)
    check_accounts(log, result.influence)
    failed = [("b", 0, "node-gone")]
    assert [(e.site, e.job, e.reason) for e in of_kind(log, "fail")] == ([] if answered else failed)
    jobs = [event.job for event in of_kind(log, "arrive") if event.site == "b"]
    assert jobs[:2] == ([0, 1] if answered else [1, 2])


def test_nodes_that_are_all_gone_are_waited_for_and_then_an_error(monkeypatch):
    monkeypatch.setattr("fedraw.run.loop.NODE_POLL", 0.0)
    polls = [0]

    def back_after_a_while(sent):
        polls[0] += sent >= 6
        return [] if sent >= 6 and polls[0] < 20 else [1000, 1001]

    monkeypatch.setattr("fedraw.mailbox.NODE_SLEEP", 0.01)
    strategy = FedBuff(clock=WallClock(0.001, 0.01), node_timeout=10.0)
    assert start(strategy, grid=Changing(2, back_after_a_while), versions=8).influence["flushes"] == 8
    strategy = FedBuff(clock=WallClock(0.001, 0.01), node_timeout=0.05)
    with pytest.raises(RunStoppedError, match="no client can take a job") as caught:
        start(strategy, grid=Changing(2, lambda sent: [1000, 1001] if sent < 6 else []), versions=99)
    assert caught.value.result.influence["received"] in (6, 7)


def test_fedraw_makes_a_version_of_those_left_when_nodes_go(monkeypatch):
    monkeypatch.setattr("fedraw.run.loop.NODE_POLL", 0.0)
    log = []
    nodes = list(range(1000, 1005))
    grid = Changing(5, lambda sent: nodes if sent < 20 else nodes[:2])
    strategy = FedRAW(clock=WallClock(0.001, 0.01), buffer_size=5, events=log)
    result = start(strategy, grid=grid, versions=8)
    check_accounts(log, result.influence)
    assert {event.site for event in of_kind(log, "aggregate")[-2:]} == {"site-0", "site-1"}


def test_messages_expire_when_their_job_times_out():
    def sent(**settings):
        grid = InProcessGrid(linear_app(), 2)
        start(FedBuff(clock=WallClock(0.001, 0.01), **settings), grid=grid, versions=1, timeout=40.0)
        return {round(message.metadata.ttl, 6) for message in grid.sent}

    assert sent(job_timeout=7.0) == {7.0}
    assert sent() == {40.0}


def test_polls_outside_their_range_are_refused():
    with pytest.raises(SettingError, match="0 to 1 seconds apart"):
        WallClock(0, 1)
