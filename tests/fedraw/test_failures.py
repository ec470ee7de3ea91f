"""Jobs that fail: each is counted once, frees its place once, and its client comes back."""

import time
from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message

from fedraw import FedBuff, FedRAW
from fedraw.clock import VirtualClock, WallClock
from fedraw.errors import RunStoppedError
from tests.fedraw.toy import (
    arrays_of,
    check_accounts,
    linear_app,
    listed,
    number,
    of_kind,
    record,
    shift_app,
    start,
)
from tests.inprocess import InProcessGrid


def in_flight(log):
    """Return the number of jobs in flight after the events of each time."""
    counts, now = {}, 0
    for event in log:
        now += {"dispatch": 1, "arrive": -1, "drop": -1, "fail": -1}.get(event.kind, 0)
        counts[event.time] = now
    return list(counts.values())


def test_a_client_that_raises_at_every_third_call_keeps_no_place_and_comes_back():
    log = []
    app = linear_app(fail=lambda part, job: part == 0 and job % 3 == 2)
    strategy = FedBuff(clock=VirtualClock(), concurrency=3, events=log, retry_after=1.5)
    result = start(strategy, app=app, clients=5, versions=20)
    assert set(in_flight(log)[:-1]) == {3}
    failed = of_kind(log, "fail")
    assert len(failed) >= 3
    assert {(event.site, event.reason) for event in failed} == {("site-0", "error")}
    assert {event.job % 3 for event in failed} == {2}
    arrived = [event.job for event in of_kind(log, "arrive") if event.site == "site-0"]
    assert max(arrived) > max(event.job for event in failed[:-1])
    assert result.influence["failed"] == {"error": len(failed)}
    check_accounts(log, result.influence)


def test_pauses_double_up_to_a_limit_and_end_with_a_success():
    log = []
    app = linear_app(fail=lambda part, job: part == 0 and job != 5)
    clock = listed(site_0=[1.0], site_1=[1.0])
    strategy = FedBuff(
        clock=clock, buffer_size=10, concurrency=2, events=log, retry_after=2.0, retry_limit=10.0
    )
    start(strategy, app=app, clients=2, versions=6)
    times = [event.time for event in of_kind(log, "dispatch") if event.site == "site-0"]
    pauses = (np.diff(times) - 1.0).tolist()
    assert pauses[:7] == [2.0, 4.0, 8.0, 10.0, 10.0, 0.0, 2.0]


# NumPy's parser of headers goes too deep on it.
CRAFTED = Array("float32", (3,), "numpy.ndarray", b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 0xFFFF)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda content: content["arrays"].pop("weight"), "arrays"),
        (lambda content: content["arrays"].update(record({"more": np.zeros(1)})), "arrays"),
        (lambda content: content["arrays"].update(record({"weight": np.zeros(4)})), "arrays"),
        (lambda content: content["arrays"].update(record({"weight": np.zeros(3, complex)})), "arrays"),
        (lambda content: content["arrays"].update(record({"weight": np.array(["a", "b", "c"])})), "arrays"),
        (lambda content: content["arrays"].update({"weight": CRAFTED}), "arrays"),
        (lambda content: content.pop("arrays"), "arrays"),
        (lambda content: content.update({"more": ArrayRecord()}) or content.pop("arrays"), "arrays"),
        (lambda content: content["arrays"].update(record({"weight": np.full(3, np.nan)})), "not-finite"),
        (lambda content: content["arrays"].update(record({"weight": np.full(3, 1e300)})), "not-finite"),
        (
            lambda content: content["arrays"].update(record({"bn.running_var": np.full(2, np.inf)})),
            "not-finite",
        ),
        (  # finite as it came, and not in the dtype that was sent
            lambda content: content["arrays"].update(record({"bn.running_var": np.full(2, 1e300)})),
            "not-finite",
        ),
        (
            lambda content: content["arrays"].update(record({"bn.num_batches_tracked": np.array(1e300)})),
            "arrays",
        ),
        (lambda content: content["metrics"].pop("num-examples"), "metrics"),
        (lambda content: content["metrics"].update({"num-examples": [1, 2]}), "metrics"),
        (lambda content: content["metrics"].update({"num-examples": -1}), "metrics"),
        (lambda content: content["metrics"].update({"num-examples": float("nan")}), "metrics"),
    ],
)
def test_a_reply_that_gives_no_update_is_a_failure_with_its_reason(change, reason, caplog):
    def reply(content, part, job):
        if part == 0 and job == 1:
            change(content)

    log = []
    strategy = FedBuff(clock=VirtualClock(), weigh_by="examples", events=log)
    with np.errstate(over="ignore"), caplog.at_level("WARNING", "flwr.fedraw"):
        result = start(strategy, app=linear_app(reply=reply), versions=8)
    assert [(e.site, e.job, e.reason) for e in of_kind(log, "fail")] == [("site-0", 1, reason)]
    assert f"job 1 of site 'site-0' failed: {reason}: " in caplog.text
    assert ("site-0", 1) not in {(e.site, e.job) for e in log if e.kind in ("arrive", "aggregate")}
    assert np.isfinite(arrays_of(result.arrays)["weight"]).all()
    check_accounts(log, result.influence)


def test_other_float_types_and_names_of_records_are_taken():
    def reply(content, part, job):
        content["trained"] = record(
            {key: a.astype(np.float64) for key, a in arrays_of(content.pop("arrays")).items()}
        )
        del content["metrics"]
        content["more"] = ConfigRecord({"text": "hello"})

    result = start(FedBuff(clock=VirtualClock()), app=linear_app(reply=reply), versions=2)
    same = start(FedBuff(clock=VirtualClock()), versions=2)
    assert result.influence["failed"] == {}
    for key, array in arrays_of(same.arrays).items():
        assert arrays_of(result.arrays)[key].tolist() == array.tolist()
        assert arrays_of(result.arrays)[key].dtype == array.dtype


@pytest.mark.parametrize("clock", [VirtualClock(), WallClock()])
def test_clients_that_all_fail_stop_the_run_with_the_last_reason(clock):
    strategy = FedBuff(clock=clock, retry_after=0.001, retry_limit=0.002, give_up_after=3)
    app = linear_app(fail=lambda part, job: job > 1)
    with pytest.raises(RunStoppedError, match=r"each of the 4 .* 3 times in a row(.|\n)*boom at") as caught:
        start(strategy, app=app, versions=99)
    assert np.abs(arrays_of(caught.value.result.arrays)["weight"]).sum() > 0
    assert caught.value.result.influence["failed"]["error"] >= 12


def test_a_job_beyond_its_time_limit_is_a_time_out_in_virtual_time():
    log = []
    clock = listed(site_0=[1.0], site_1=[1.0], site_2=[9.0] + [1.0] * 9)
    strategy = FedBuff(clock=clock, concurrency=3, job_timeout=2.5, retry_after=1.0, events=log)
    result = start(strategy, clients=3, versions=4)
    (failed,) = of_kind(log, "fail")
    assert (failed.site, failed.time, failed.reason) == ("site-2", 2.5, "timeout")
    assert [e.time for e in of_kind(log, "dispatch") if e.site == "site-2"][:2] == [0.0, 3.5]
    check_accounts(log, result.influence)


class TroubledGrid(InProcessGrid):
    """A grid where one node has trouble with its first message.

    ``trouble`` is ``lost`` (no reply ever), ``late`` (the reply is held back until ``release``), ``gone``
    (the node leaves after its reply) or a pair of Flower's error code and reason in the place of the reply.
    """

    def __init__(self, app, clients, trouble, node=1000):
        super().__init__(app, clients, workers=clients)
        self.trouble, self.node = trouble, node
        self.first = None
        self.left = False
        self.polled_late = False
        self.release = False

    def get_node_ids(self):
        return [node for node in self.contexts if not (self.left and node == self.node)]

    def push_messages(self, messages):
        (message,) = list(messages)
        ids = super().push_messages([message])
        if message.metadata.dst_node_id == self.node and self.first is None:
            self.first = ids[0], message
        return ids

    def pull_messages(self, message_ids):
        asked = list(message_ids)
        message_id = None if self.first is None else self.first[0]
        others = [i for i in asked if i != message_id]
        replies = super().pull_messages(others)
        if message_id not in asked:
            return replies
        if isinstance(self.trouble, tuple):
            code, reason = self.trouble
            return [*replies, Message(Error(code, reason), reply_to=self.first[1])]
        if self.trouble == "gone":
            own = super().pull_messages([message_id])
            self.left = self.left or bool(own)
            return [*replies, *own]
        if self.trouble == "late" and self.release:
            self.polled_late = True
            return [*replies, *super().pull_messages([message_id])]
        return replies


def wall_run(grid, *, versions=30, on_step=None, **settings):
    log = []
    strategy = FedBuff(
        clock=WallClock(0.001, 0.01), buffer_size=2, concurrency=3, retry_after=1e-6, events=log, **settings
    )
    strategy.on_step = None if on_step is None else lambda strategy: on_step(log)
    result = start(strategy, grid=grid, versions=versions)
    check_accounts(log, result.influence)
    return log, result


@pytest.mark.parametrize("trouble", ["lost", "late"])
def test_a_reply_that_does_not_come_in_time_is_one_failure_and_ignored_later(trouble, monkeypatch):
    grid = TroubledGrid(linear_app(), 2, trouble)
    hours = [0]
    real = SimpleNamespace(monotonic=lambda: time.monotonic() + 3600 * hours[0], sleep=time.sleep)
    monkeypatch.setattr("fedraw.clock.time", real)

    def on_step(log):
        # After an arrival of site-1, and before its next job, only site-0 waits for a reply.
        hours[0] = int(len(of_kind(log, "arrive")) >= 6)
        grid.release = bool(of_kind(log, "fail"))

    log, result = wall_run(grid, versions=100, job_timeout=1800.0, on_step=on_step)
    assert result.influence["failed"] == {"timeout": 1}
    assert not grid.polled_late
    jobs = [event.job for event in of_kind(log, "arrive") if event.site == "site-0"]
    assert jobs[0] == 1


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [((5, "node unavailable"), "node-gone"), ((3, "expired"), "timeout"), ((4, "expired"), "timeout")],
)
def test_flowers_own_error_replies_are_one_failure_each(trouble, reason):
    log, result = wall_run(TroubledGrid(linear_app(), 3, trouble))
    assert result.influence["failed"] == {reason: 1}
    assert [(e.site, e.job) for e in of_kind(log, "fail")] == [("site-0", 0)]


def test_a_node_that_leaves_after_its_reply_has_its_update_taken():
    log, result = wall_run(TroubledGrid(linear_app(), 3, "gone"), versions=10)
    assert result.influence["failed"] in ({}, {"unreachable": 1})
    assert [e.job for e in of_kind(log, "arrive") if e.site == "site-0"][:1] == [0]


@pytest.mark.parametrize(
    "error",
    [
        (2, "Traceback\n\x1b[36mray.exceptions.ActorDiedError\x1b[0m: the actor died"),
        (0, "<class 'ray.exceptions.ObjectReconstructionFailedError'>:<'Failed to retrieve object 00a6'>"),
    ],
)
def test_a_dead_worker_stops_the_run(error):
    grid = TroubledGrid(linear_app(), 3, error)
    with pytest.raises(RunStoppedError, match="Ray worker"):
        wall_run(grid)


def test_a_node_that_cannot_be_reached_is_a_failure():
    class Deaf(InProcessGrid):
        def push_messages(self, messages):
            (message,) = list(messages)
            return [] if message.metadata.dst_node_id == 1000 else super().push_messages([message])

    log = []
    grid = Deaf(linear_app(), 3)
    result = start(FedBuff(clock=VirtualClock(), events=log), grid=grid, versions=4)
    assert result.influence["failed"]["unreachable"] >= 2
    assert {event.site for event in of_kind(log, "arrive")} == {"site-1", "site-2"}
    check_accounts(log, result.influence)


def test_fedraw_goes_on_with_the_clients_that_are_left(caplog):
    """Three of five clients fail for ever: a version is made of the two others, after each has sent one."""
    log = []
    app = shift_app(lambda part, job: 1.0 if part < 2 else 1 / 0)
    clock = listed(site_0=[1.0], site_1=[1.6], site_2=[1.0], site_3=[1.0], site_4=[1.0])
    strategy = FedRAW(clock=clock, buffer_size=4, retry_after=1000.0, retry_limit=1000.0, events=log)
    with caplog.at_level("WARNING", "flwr.fedraw"):
        result = start(strategy, app=app, clients=5, arrays=number(), versions=3)
    assert caplog.text.count("only 2 clients can be in the buffer, buffer_size is 4") == 1
    aggregated = of_kind(log, "aggregate")
    assert [event.site for event in aggregated] == ["site-0", "site-1"] * 3
    assert arrays_of(result.arrays)["x"][0] > 0
    check_accounts(log, result.influence)


def test_the_reason_of_a_failure_is_the_clients_exception(caplog):
    class Simulated(InProcessGrid):
        def pull_messages(self, message_ids):
            return [
                Message(Error(2, in_ray(reply.error.reason)), reply_to=self.sent[0])
                if reply.has_error()
                else reply
                for reply in super().pull_messages(message_ids)
            ]

    def in_ray(reason):
        exception = reason.partition("<'")[2].removesuffix("'>")
        return (
            f"<class 'ray.exceptions.RayTaskError'>:<'\x1b[36mray::ClientAppActor.run()\x1b[39m\n  File x\n"
            f"ValueError: {exception}\n\nThe above exception was the cause\n"
            f"Exception ClientAppException occurred. Message: {exception}'>"
        )

    app = linear_app(fail=lambda part, job: part == 0 and job == 0)
    with caplog.at_level("WARNING", "flwr.fedraw"):
        start(FedBuff(clock=VirtualClock()), grid=Simulated(app, 2), versions=2)
    assert "job 0 of site 'site-0' failed: error: ValueError: boom at 0\n" in caplog.text


def test_records_without_content_are_no_surprise():
    def reply(content, part, job):
        if part == 0:
            for key in list(content):
                del content[key]

    log = []
    start(FedBuff(clock=VirtualClock(), events=log), app=linear_app(reply=reply), versions=2)
    assert {event.reason for event in of_kind(log, "fail")} == {"arrays"}
