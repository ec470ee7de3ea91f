"""Replies that cannot be used: each fault is named."""

from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from federation import records
from federation.messages.replies import unusable_reply

HELLO = {"site": "a", "partition-id": 0, "device": "cpu", "fingerprint": "f", "source": "/"}
SELECTION: dict[str, Any] = {
    "budget": 3,
    "num-labelled": 6,
    "label-coverage": [1, 0],
    "class-counts": [3, 0],
    "s": 0.5,
    "global-model": 1,
}


pytestmark = pytest.mark.usefixtures("task_identity")


def request(kind: str) -> Message:
    content = RecordDict({"config": ConfigRecord({"budget": 3, "label-round": 2})})
    if kind == records.TRAIN:
        content["arrays"] = ArrayRecord({"w": Array(np.zeros(2, dtype=np.float32))})
    return Message(content, 7, kind)


def reply(metrics: dict[str, Any], config: dict[str, Any] | None = None) -> RecordDict:
    content = RecordDict({"metrics": MetricRecord(metrics)})
    if config is not None:
        content["config"] = ConfigRecord(config)
    return content


def test_good_replies_pass() -> None:
    hello = reply({"pool-size": 3, "num-labelled": 2, "label-coverage": [0, 1]}, HELLO)
    assert unusable_reply(request(records.HELLO), hello, 2) is None
    assert unusable_reply(request(records.SELECT), reply(SELECTION), 2) is None
    assert unusable_reply(request(records.ESTIMATE), reply({}), 2) is None
    assert unusable_reply(request(records.ESTIMATE), reply({"gamma": 0.0, "d": 1.0}), 2) is None
    evaluation = reply({"num-examples": 3, "loss": 2.5, "accuracy": 0.5})
    assert unusable_reply(request(records.EVALUATE), evaluation, 2) is None


@pytest.mark.parametrize(
    ("kind", "metrics", "reason"),
    [
        (records.ESTIMATE, {"gamma": float("nan")}, "gamma is nan, which is not a number from 0 to 1"),
        (records.ESTIMATE, {"gamma": 1.5}, "gamma is 1.5"),
        (records.ESTIMATE, {"gamma": [0.5]}, "gamma is [0.5]"),
        (records.EVALUATE, {"num-examples": 3, "loss": 2.5}, "the reply lacks accuracy"),
        (records.EVALUATE, {"num-examples": 3, "loss": float("inf"), "accuracy": 0.5}, "loss is inf"),
        (records.SELECT, SELECTION | {"num-labelled": -5}, "num-labelled is -5"),
        (records.SELECT, SELECTION | {"num-labelled": 2.5}, "num-labelled is 2.5"),
        (
            records.SELECT,
            SELECTION | {"budget": 4, "class-counts": [4, 0]},
            "more than the 3 that",
        ),
        (records.SELECT, SELECTION | {"class-counts": [7]}, "class-counts is [7]"),
        (records.SELECT, SELECTION | {"class-counts": [1, 1]}, "class-counts add up to 2, and 3 images"),
        (records.SELECT, SELECTION | {"class-counts": [4, -1]}, "class-counts is [4, -1]"),
        (records.SELECT, SELECTION | {"label-coverage": [1]}, "label-coverage is [1]"),
        (records.SELECT, SELECTION | {"label-coverage": [2, 0]}, "label-coverage is [2, 0]"),
        (records.SELECT, SELECTION | {"global-model": 2}, "global-model is 2"),
        (records.HELLO, {"pool-size": 3, "label-coverage": [0, 1]}, "the reply lacks device"),
    ],
)
def test_faults_are_named(kind: str, metrics: dict[str, Any], reason: str) -> None:
    told = unusable_reply(request(kind), reply(metrics), 2)
    assert told is not None
    assert reason in told


def test_a_reply_without_metrics_is_named() -> None:
    assert unusable_reply(request(records.SELECT), RecordDict()) == "the reply lacks the record metrics"


def trained(array: np.ndarray, **metrics: Any) -> RecordDict:
    content = reply({"num-examples": 2} | metrics)
    content["arrays"] = ArrayRecord({"w": Array(array)})
    return content


def test_the_type_of_arrays_is_checked() -> None:
    sent = request(records.TRAIN)
    assert unusable_reply(sent, trained(np.zeros(2, dtype=np.float64))) is None
    told = unusable_reply(sent, trained(np.zeros(2, dtype=np.int64)))
    assert told == "the array w has type int64, sent was float32"
    assert "has type <U1" in (unusable_reply(sent, trained(np.array(["a", "b"]))) or "")


def test_coverage_of_a_training_reply_is_checked() -> None:
    told = unusable_reply(
        request(records.TRAIN), trained(np.zeros(2, np.float32), **{"label-coverage": [1]}), 2
    )
    assert told == "label-coverage is [1], which is not a list of 2 numbers, one a class"


def test_message_types_of_other_apps_pass() -> None:
    assert unusable_reply(request("query.other"), RecordDict()) is None
