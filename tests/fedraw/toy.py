"""Federations of a few numbers: client apps in numpy, and runs of them in this process."""

import json
from collections import Counter

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedraw.arrays import read_array
from fedraw.clock import VirtualClock
from fedraw.delays import Bernoulli, FromList, LogNormal
from tests.inprocess import InProcessGrid


def record(arrays):
    """Return arrays as a record of Flower."""
    return ArrayRecord({key: Array(np.asarray(value)) for key, value in arrays.items()})


def arrays_of(record):
    """Return a record of Flower as arrays."""
    return {key: read_array(value) for key, value in record.items()}


def start_arrays():
    """Return the model of ``linear_app``: a linear regression, a batch norm's buffers, a classifier."""
    return record(
        {
            "weight": np.zeros(3, np.float32),
            "bn.running_var": np.ones(2, np.float32),
            "bn.num_batches_tracked": np.array(0, np.int64),
            "head.weight": np.zeros((2, 3), np.float32),
        }
    )


def examples_of(part):
    """Return how many examples a client has."""
    return 4 + 3 * part


def linear_app(*, coverage=False, fail=None, reply=None):
    """Return clients that take five gradient steps of linear regression on their own few examples.

    ``fail(part, job)`` says which jobs raise; ``reply(content, part, job)`` changes what is answered.
    """
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        part, job = int(context.node_config["partition-id"]), int(message.content["config"].get("job", 0))
        if fail is not None and fail(part, job):
            raise ValueError(f"boom at {part}")
        rng = np.random.default_rng(part)
        x = rng.normal(size=(examples_of(part), 3)).astype(np.float32)
        y = (x @ np.array([1.0, -2.0, part], np.float32)).astype(np.float32)
        got = arrays_of(message.content["arrays"])
        weight = got["weight"]
        for _ in range(5):
            weight = weight - np.float32(0.05) * x.T @ (x @ weight - y) / len(x)
        trained = {
            "weight": weight,
            "bn.running_var": got["bn.running_var"] * np.float32(0.9) + np.float32(0.1 * (part + 1)),
            "bn.num_batches_tracked": got["bn.num_batches_tracked"] + 5,
            "head.weight": got["head.weight"] + np.float32([[0.1] * 3, [0.1 if part % 2 else -0.1] * 3]),
        }
        metrics = {"num-examples": examples_of(part), "loss": float(np.mean((x @ weight - y) ** 2))}
        if coverage:
            metrics["label-coverage"] = [1, int(part % 2 == 0), int(part == 0)]
        content = RecordDict({"arrays": record(trained), "metrics": MetricRecord(metrics)})
        if reply is not None:
            reply(content, part, job)
        return Message(content, reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        part = int(context.node_config["partition-id"])
        loss = float(np.abs(arrays_of(message.content["arrays"])["weight"]).sum())
        metrics = MetricRecord({"num-examples": examples_of(part), "loss": loss})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


def shift_app(shift):
    """Return clients that add ``shift(part, job)`` to the one number they get."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        part, job = int(context.node_config["partition-id"]), int(message.content["config"]["job"])
        value = arrays_of(message.content["arrays"])["x"] + shift(part, job)
        metrics = MetricRecord({"num-examples": 1})
        return Message(RecordDict({"arrays": record({"x": value}), "metrics": metrics}), reply_to=message)

    return app


def number(value=0.0):
    """Return the model of ``shift_app``."""
    return record({"x": np.array([value])})


def listed(**seconds):
    """Return a virtual clock with durations from a list, by ``site_0=[1.0, 2.0]``."""
    return VirtualClock(FromList(seconds={site.replace("_", "-"): times for site, times in seconds.items()}))


def random_clock(seed=0, availability=0.8, sigma=1.0):
    """Return a virtual clock with random durations and availability."""
    return VirtualClock(LogNormal(sigma=sigma), Bernoulli(probability=availability), seed=seed)


def start(strategy, *, clients=4, versions=5, app=None, arrays=None, workers=1, grid=None, **settings):
    """Run a strategy in this process and return its result."""
    grid = grid or InProcessGrid(app or linear_app(), clients, workers=workers)
    arrays = start_arrays() if arrays is None else arrays
    return strategy.start(grid, arrays, num_rounds=versions, **settings)


class NodesOnly:
    """A grid for runs without messages: it has nodes, and nothing else."""

    def __init__(self, count):
        self.count = count

    def get_node_ids(self):
        """Return the ids of the nodes."""
        return list(range(self.count))


class OneMessageEach(InProcessGrid):
    """A grid that fails the test when a node gets a second message before its reply was pulled."""

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        self.working = {}

    def push_messages(self, messages):
        """Check that each node is free."""
        messages = list(messages)
        for message in messages:
            node = message.metadata.dst_node_id
            assert node not in self.working.values(), f"node {node} has a message already"
        ids = super().push_messages(messages)
        self.working |= {i: m.metadata.dst_node_id for i, m in zip(ids, messages, strict=True)}
        return ids

    def pull_messages(self, message_ids):
        """Take note of the nodes that are free again."""
        replies = super().pull_messages(message_ids)
        for reply in replies:
            self.working.pop(reply.metadata.reply_to_message_id)
        return replies


def of_kind(log, kind):
    """Return the events of a kind."""
    return [event for event in log if event.kind == kind]


def check_accounts(log, influence):
    """Check that every accepted update is in exactly one of the four places, in the log and in the counts."""
    kinds = Counter(event.kind for event in log)
    received = Counter((e.site, e.job) for e in log if e.kind in ("arrive", "drop"))
    gone = Counter((e.site, e.job) for e in log if e.kind in ("aggregate", "replace", "drop", "leave"))
    assert received == gone
    assert all(count == 1 for count in received.values())
    assert influence["received"] == received.total()
    assert influence["aggregated"] == kinds["aggregate"]
    assert influence["replaced"] == kinds["replace"]
    assert sum(influence["dropped"].values()) == kinds["drop"]
    assert sum(influence["failed"].values()) == kinds["fail"]
    assert influence["left_over"] == kinds["leave"]
    ended = kinds["arrive"] + kinds["drop"] + kinds["fail"] + kinds["abandon"]
    assert kinds["dispatch"] == ended


def through_json(state):
    """Return a copy of a state as it comes back from a file."""
    arrays, rest = state
    return {name: array.copy() for name, array in arrays.items()}, json.loads(json.dumps(rest))
