"""ClientGrid: order, one message at a time, named failures, and Flower's FedAvg on top of it unchanged."""

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.errors import AllClientsFailedError, DeadWorkerError, RareflError
from federation.messages.grid import ClientGrid, Site
from tests.inprocess import InProcessGrid

SHAPES = {"weight": (4, 3), "bias": (3,)}


def arrays(value: float = 0.0) -> ArrayRecord:
    return ArrayRecord({key: Array(np.full(shape, value, np.float32)) for key, shape in SHAPES.items()})


def answer(message: Message, arrays: ArrayRecord, examples: float = 1.0) -> Message:
    metrics = MetricRecord({"num-examples": examples, "train-loss": 1.0})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


def partition(context: Context) -> int:
    return int(context.node_config["partition-id"])  # type: ignore[arg-type]


def client_app(train: Callable[[Message, Context], Message] | None = None) -> ClientApp:
    """Return clients that add seeded noise of their own, or do what ``train`` says; queries echo."""
    app = ClientApp()

    @app.train()
    def _(message: Message, context: Context) -> Message:
        if train is not None:
            return train(message, context)
        config = message.content.config_records["config"]
        rng = np.random.default_rng([partition(context), int(config["server-round"])])  # type: ignore[arg-type]
        record = message.content.array_records["arrays"]
        moved = {k: Array(a.numpy() + rng.normal(size=a.shape).astype(np.float32)) for k, a in record.items()}
        return answer(message, ArrayRecord(moved), examples=10 + partition(context))

    @app.query("echo")
    def _(message: Message, context: Context) -> Message:
        config = dict(message.content.config_records["config"]) | {"partition": partition(context)}
        return Message(RecordDict({"config": ConfigRecord(config)}), reply_to=message)  # type: ignore[arg-type]

    return app


def named(inner: InProcessGrid, reverse: bool = True) -> ClientGrid:
    """Return a grid whose sites stand in another order than their node ids."""
    nodes = sorted(inner.get_node_ids(), reverse=reverse)
    return ClientGrid(inner, [Site(node, f"site-{node - 1000}") for node in nodes])


def request(node_id: int, kind: str = "query.echo", **config: Any) -> Message:
    return Message(RecordDict({"config": ConfigRecord(config)}), node_id, kind)


def train_request(node_id: int, server_round: int = 1) -> Message:
    content = RecordDict({"arrays": arrays(), "config": ConfigRecord({"server-round": server_round})})
    return Message(content, node_id, "train")


class UnreliableGrid(InProcessGrid):
    """Repeats replies, mixes in old ones, shuffles and delays them by a seed; ``lost`` nodes never answer.

    ``simulated`` chooses what happens to messages for unknown nodes: left out, or answered with "".
    """

    def __init__(
        self, *args: Any, seed: int = 0, lost: Iterable[int] = (), simulated: bool = False, **kw: Any
    ) -> None:
        super().__init__(*args, **kw)
        self.random = random.Random(seed)
        self.lost = set(lost)
        self.simulated = simulated
        self.delivered: list[Message] = []
        self.pulled: list[str] = []

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        ids = super().push_messages(messages)
        return [message_id for message_id in ids if message_id] if self.simulated else ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        lost = {
            message.metadata.message_id for message in self.sent if message.metadata.dst_node_id in self.lost
        }
        chosen = [message_id for message_id in message_ids if self.random.random() < 0.5]
        replies = super().pull_messages(message_id for message_id in chosen if message_id not in lost)
        assert not set(chosen) & set(self.pulled), "Flower answers a second pull with an error"
        self.pulled += [reply.metadata.reply_to_message_id for reply in replies]
        replies += self.random.choices(self.delivered, k=2) if self.delivered else []
        replies += replies[:1]
        self.random.shuffle(replies)
        self.delivered += replies
        return replies


class ErrorGrid(InProcessGrid):
    """Answers for the nodes in ``errors`` with these errors."""

    def __init__(self, *args: Any, errors: dict[int, Error], **kw: Any) -> None:
        super().__init__(*args, **kw)
        self.errors = errors

    def _work(self, message: Message) -> Message:
        reply = super()._work(message)
        error = self.errors.get(message.metadata.dst_node_id)
        if error is None:
            return reply
        failed = Message(error, reply_to=message)
        failed.metadata.__dict__["_src_node_id"] = 1  # Flower's SuperLink, for a node that is gone
        return failed


# --- order and delivery


def test_replies_come_in_the_order_of_the_sites() -> None:
    inner = InProcessGrid(
        client_app(), 4, workers=4, latency=lambda message: 0.01 * (message.metadata.dst_node_id % 3)
    )
    grid = named(inner)
    assert grid.get_node_ids() == [1003, 1002, 1001, 1000]
    replies = grid.send_and_receive(
        request(node, number=i) for i, node in enumerate([1001, 1003, 1000, 1002])
    )
    assert [reply.content["config"]["partition"] for reply in replies] == [3, 2, 1, 0]
    assert [reply.content["config"]["number"] for reply in replies] == [1, 3, 0, 2]


def test_before_the_hello_nodes_are_those_of_flower_sorted() -> None:
    inner = InProcessGrid(client_app(), 3)
    inner.contexts = dict(reversed(inner.contexts.items()))
    assert ClientGrid(inner).get_node_ids() == [1000, 1001, 1002]


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    sent=st.lists(st.integers(1000, 1003), min_size=1, max_size=12),
    workers=st.integers(1, 4),
)
def test_each_message_is_answered_once_whatever_the_grid_does(
    seed: int, sent: list[int], workers: int
) -> None:
    inner = UnreliableGrid(client_app(), 4, seed=seed, workers=workers)
    grid = named(inner)
    replies = grid.send_and_receive(request(node, number=i) for i, node in enumerate(sent))
    numbers = [reply.content["config"]["number"] for reply in replies]
    assert numbers == sorted(range(len(sent)), key=lambda i: (-sent[i], i))
    assert grid.failures == []


def test_a_node_has_one_message_at_a_time() -> None:
    at_work: set[int] = set()
    lock = threading.Lock()
    overlaps = []

    class Watching(InProcessGrid):
        def _work(self, message: Message) -> Message:
            node = message.metadata.dst_node_id
            with lock:
                overlaps.append(node in at_work)
                at_work.add(node)
            time.sleep(0.002)
            reply = super()._work(message)
            with lock:
                at_work.discard(node)
            return reply

    grid = named(Watching(client_app(), 2, workers=8))
    assert len(grid.send_and_receive([request(1000 + i % 2) for i in range(12)])) == 12
    assert overlaps == [False] * 12


def test_no_messages_no_replies() -> None:
    assert named(InProcessGrid(client_app(), 2)).send_and_receive([]) == []


# --- what is sent is a copy


@pytest.mark.parametrize("push", [False, True])
def test_a_record_changed_after_sending_does_not_change_for_the_client(push: bool) -> None:
    def change(_: Message) -> float:
        config["lr"] = 7.0
        return 0.0

    inner = InProcessGrid(client_app(), 2, latency=change)  # called when a message has been sent
    grid = named(inner)
    config, metrics, shared = ConfigRecord({"lr": 0.1, "list": [1]}), MetricRecord({"list": [1]}), arrays()
    content = RecordDict({"config": config, "metrics": metrics, "arrays": shared})
    messages = [Message(content, node, "query.echo", ttl=77.0, group_id="g") for node in (1000, 1001)]
    if push:
        ids = grid.push_messages(message for message in messages)
        replies: list[Message] = []
        while len(replies) < 2:
            replies += grid.pull_messages([*ids, ""])
    else:
        replies = grid.send_and_receive(messages)
    assert [reply.content["config"]["lr"] for reply in replies] == [0.1, 0.1]
    first, second = (message.content for message in inner.sent)
    for name in ("config", "metrics"):
        assert first[name] is not second[name]
        assert first[name]["list"] is not content[name]["list"]
    assert first["arrays"] is shared
    assert inner.sent[0].metadata.ttl == 77.0
    assert inner.sent[0].metadata.group_id == "g"
    assert all(message is not sent for message in messages for sent in inner.sent)


# --- failures


@pytest.mark.parametrize("simulated", [False, True])
def test_an_unknown_node_is_a_named_failure(simulated: bool) -> None:
    inner = UnreliableGrid(client_app(), 2, simulated=simulated)
    grid = ClientGrid(inner, [Site(1000, "a"), Site(7, "b"), Site(1001, "c")])
    replies = grid.send_and_receive([request(node) for node in grid.get_node_ids()])
    assert [reply.content["config"]["partition"] for reply in replies] == [0, 1]
    assert [str(failure) for failure in grid.failures] == [
        "query.echo: b failed: not delivered: the node is not connected, or the message is too large"
    ]
    assert grid.failures[0].kind == "not delivered"
    assert grid.push_messages([request(7), request(1000)])[0] == ""


def test_a_site_that_does_not_answer_in_time_is_a_named_failure(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("rarefl"), "propagate", True)
    grid = named(UnreliableGrid(client_app(), 3, lost=[1001]))
    replies = grid.send_and_receive([request(node) for node in (1000, 1001, 1002, 1001)], timeout=0.3)
    assert [reply.content["config"]["partition"] for reply in replies] == [2, 0]
    reasons = ["no reply within 0.3 s", "still busy with an earlier message after 0.3 s"]
    assert [(f.site, f.reason, f.kind) for f in grid.failures] == [("site-1", r, "time-out") for r in reasons]
    assert [record.getMessage() for record in caplog.records] == [
        f"query.echo: site-1 failed: {reason}" for reason in reasons
    ]


def test_a_late_reply_is_dropped_and_frees_its_node() -> None:
    slow = iter([0.2, 0.0, 0.0])
    grid = named(InProcessGrid(client_app(), 1, latency=lambda message: next(slow)))
    with pytest.raises(AllClientsFailedError):
        grid.send_and_receive([request(1000, number=1)], timeout=0.05)
    for number in (2, 3):
        (reply,) = grid.send_and_receive([request(1000, number=number)], timeout=5)
        assert reply.content["config"]["number"] == number
    assert len(grid.failures) == 1


def test_an_error_reply_is_left_out_and_named() -> None:
    def train(message: Message, context: Context) -> Message:
        if partition(context) == 1:
            raise ValueError("no labelled images")
        return answer(message, arrays())

    grid = named(InProcessGrid(client_app(train), 3))
    replies = grid.send_and_receive([train_request(node, 4) for node in (1000, 1001, 1002)])
    assert [reply.metadata.src_node_id for reply in replies] == [1002, 1000]
    (failure,) = grid.failures
    assert (failure.what, failure.site, failure.reason, failure.kind) == (
        "train in round 4",
        "site-1",
        "ValueError: no labelled images",
        "raised",
    )


def test_a_node_that_has_gone_keeps_its_name() -> None:
    grid = named(ErrorGrid(client_app(), 2, errors={1001: Error(5, "Node Unavailable")}))
    assert len(grid.send_and_receive([request(1000), request(1001)])) == 1
    assert str(grid.failures[0]) == "query.echo: site-1 failed: Node Unavailable"


def test_all_sites_failed_is_an_error_that_groups_reasons() -> None:
    boom, gone = Error(2, "<class 'ValueError'>:<'boom'>"), Error(5, "Node Unavailable")
    grid = named(ErrorGrid(client_app(), 3, errors={1000: boom, 1001: gone, 1002: boom}), reverse=False)
    with pytest.raises(AllClientsFailedError) as caught:
        grid.send_and_receive([train_request(node, 2) for node in grid.get_node_ids()])
    assert str(caught.value) == (
        "train in round 2: no client gave a usable answer\n"
        "  site-0, site-2: ValueError: boom\n"
        "  site-1: Node Unavailable"
    )
    assert isinstance(caught.value, RareflError)


@pytest.mark.parametrize(
    "error",
    [Error(0, "<class 'ray.exceptions.ActorDiedError'>:<'The actor died.'>"), Error(0, None)],
)
def test_a_dead_worker_ends_the_run(error: Error) -> None:
    grid = named(ErrorGrid(client_app(), 3, errors={1001: error}))
    with pytest.raises(DeadWorkerError) as caught:
        grid.send_and_receive([train_request(node, 2) for node in grid.get_node_ids()])
    text = str(caught.value)
    for part in (
        "train in round 2: the Ray worker that ran site-1 died",
        "memory ran out",
        "keeps a dead worker in its pool",
        "silently lose clients",
        "client-resources-num-cpus",
        "train.batch-size",
        "Ray's logs",
    ):
        assert part in text
    assert grid.failures[-1].kind == "dead worker"


def test_only_train_is_checked() -> None:
    grid = named(InProcessGrid(client_app(), 1))
    assert len(grid.send_and_receive([request(1000, "query.echo", value=float("nan"))])) == 1


# --- participants


def test_participants_restrict_the_nodes_in_site_order() -> None:
    grid = named(InProcessGrid(client_app(), 4))
    grid.set_participants([1000, 1002])
    assert grid.get_node_ids() == [1002, 1000]
    grid.set_participants(None)
    assert len(grid.get_node_ids()) == 4
    with pytest.raises(ValueError, match=r"nodes \[5\] are not among the sites"):
        grid.set_participants([5])


# --- Flower's strategy, unchanged


def fed_avg(**kw: Any) -> FedAvg:
    return FedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1, **kw)


def run_fed_avg(grid: ClientGrid, rounds: int = 3) -> dict[str, bytes]:
    result = fed_avg().start(grid, arrays(), num_rounds=rounds, timeout=300)
    return {key: array.numpy().tobytes() for key, array in result.arrays.items()}


def test_fed_avg_gives_the_same_bits_for_any_workers_and_order() -> None:
    results = [
        run_fed_avg(named(UnreliableGrid(client_app(), 7, seed=seed, workers=workers)))
        for seed, workers in [(0, 1), (1, 2), (2, 4)]
    ]
    assert results[0] == results[1] == results[2]


def test_fed_avg_trains_exactly_the_participants() -> None:
    inner = InProcessGrid(client_app(), 5)
    grid = named(inner)
    grid.set_participants([1001, 1004])
    run_fed_avg(grid, rounds=2)
    assert sorted(message.metadata.dst_node_id for message in inner.sent) == [1001, 1001, 1004, 1004]


def bad(kind: str) -> Callable[[Message, Context], Message]:
    """Return a client that answers badly as partition 1, and with ones otherwise."""

    def train(message: Message, context: Context) -> Message:
        good = arrays(1.0)
        if partition(context) != 1:
            return answer(message, good)
        if kind == "nan":
            return answer(message, arrays(float("nan")))
        if kind == "shape":
            return answer(message, ArrayRecord({"weight": Array(np.zeros(2)), "bias": good["bias"]}))
        if kind == "keys":
            return answer(message, ArrayRecord({"weight": good["weight"]}))
        if kind == "examples":
            return answer(message, good, examples=0.0)
        return Message(RecordDict({"metrics": MetricRecord()}), reply_to=message)

    return train


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("nan", "NaN or infinite values in 2 of 2 arrays, first in weight"),
        ("shape", "the array weight has shape (2,), sent was (4, 3)"),
        ("keys", "the reply lacks the array bias (1 of 2 are missing)"),
        ("examples", "num-examples is 0.0, which is not a finite number above 0"),
        ("empty", "the reply holds 0 array records where one is expected"),
    ],
)
def test_fed_avg_goes_on_without_a_bad_client(kind: str, reason: str) -> None:
    grid = named(InProcessGrid(client_app(bad(kind)), 3))
    result = fed_avg().start(grid, arrays(), num_rounds=2)
    for array in result.arrays.values():
        np.testing.assert_array_equal(array.numpy(), 1.0)
    assert [(f.what, f.site, f.reason) for f in grid.failures] == [
        ("train in round 1", "site-1", reason),
        ("train in round 2", "site-1", reason),
    ]


def test_flowers_interface_is_passed_on() -> None:
    inner = InProcessGrid(client_app(), 1)
    grid = ClientGrid(inner)
    run = object()
    grid.set_run(run)  # type: ignore[arg-type]
    assert grid.run is run
    assert not grid.simulated
    message = grid.create_message(RecordDict(), "train", 5, "group")
    assert (message.metadata.dst_node_id, message.metadata.group_id) == (5, "group")


def sites(names: Sequence[str]) -> list[Site]:
    return [Site(1000 + i, name) for i, name in enumerate(names)]


def test_sites_have_names() -> None:
    grid = ClientGrid(InProcessGrid(client_app(), 2), sites(["north", "south"]))
    assert grid.site_name(1001) == "south"
    assert grid.site_name(5) == "node 5"
    assert [site.name for site in grid.sites] == ["north", "south"]
