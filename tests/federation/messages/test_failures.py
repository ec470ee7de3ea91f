"""Errors of clients become one readable line, and bad training replies are told apart from good ones."""

import math

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, MetricRecord, RecordDict
from hypothesis import given
from hypothesis import strategies as st

from federation.messages.failures import (
    Failure,
    describe_request,
    explain_error,
    group_by_reason,
)
from federation.messages.replies import unusable_train_reply
from fedraw.failures import LONGEST_REASON

RAY = """<class 'ray.exceptions.RayTaskError(ClientAppException)'>:<'\x1b[36mray::Actor.run()\x1b[39m (pid=5)
         ^^^^^^^^
ValueError: invalid literal for int() with base 10: 'x'

The above exception was the direct cause of the following exception:

\x1b[36mray::ClientAppActor.run()\x1b[39m (pid=5, ip=1.2, repr=<flwr.ClientAppActor object at 0x7f69f0dea5d0>)
  File "/env/flwr/simulation/ray_transport/ray_actor.py", line 59, in run
    out_message = app(message=message, context=context)
{exception}

The above exception was the direct cause of the following exception:

\x1b[36mray::ClientAppActor.run()\x1b[39m (pid=5, ip=1.2, repr=<flwr.ClientAppActor object at 0x7f69f0dea5d0>)
  File "/env/flwr/simulation/ray_transport/ray_actor.py", line 65, in run
    raise ClientAppException(str(ex)) from ex
flwr.clientapp.client_app.ClientAppException: \n\
Exception ClientAppException occurred. Message: {message}'>"""


@pytest.mark.parametrize(
    ("exception", "message", "reason"),
    [
        ("ValueError: boom from client", "boom from client", "ValueError: boom from client"),
        ("KeyError: 'images'", "'images'", "KeyError: 'images'"),
        ("AssertionError", "", "AssertionError"),
        (
            "learning.train.NonFiniteLossError: loss is nan\nlower train.lr",
            "loss is nan\nlower train.lr",
            "NonFiniteLossError: loss is nan lower train.lr",
        ),
        ("RuntimeError: a (b) [c]* \\d", "a (b) [c]* \\d", "RuntimeError: a (b) [c]* \\d"),
    ],
)
def test_of_a_ray_traceback_the_clients_exception_is_kept(exception: str, message: str, reason: str) -> None:
    text = RAY.replace("{exception}", exception).replace("{message}", message)
    assert explain_error(Error(2, text)) == (reason, "raised")


def test_the_reason_in_deployment_is_the_exception_alone() -> None:
    assert explain_error(Error(2, "<class 'ValueError'>:<'boom from client'>")) == (
        "ValueError: boom from client",
        "raised",
    )
    assert explain_error(Error(2, "<class 'datasets.errors.DataError'>:<''>")) == ("DataError", "raised")


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (0, "<class 'ray.exceptions.ActorDiedError'>:<'The actor died unexpectedly'>", "dead worker"),
        (2, "<class 'ray.exceptions.ActorDiedError'>:<'The actor died unexpectedly'>", "dead worker"),
        (0, "something else", "dead worker"),
        (1, "no module", "raised"),
        (3, "expired", "expired"),
        (4, "expired", "expired"),
        (5, "gone", "node gone"),
        (8, "ClientApp stopped responding.", "crashed"),
    ],
)
def test_kinds_follow_flowers_codes(code: int, reason: str, kind: str) -> None:
    assert explain_error(Error(code, reason))[1] == kind


def test_of_a_dead_actor_the_cause_is_kept() -> None:
    text = (
        "<class 'ray.exceptions.ActorDiedError'>:<'The actor died unexpectedly before finishing this task.\n"
        "\tclass_name: ClientAppActor\n\tactor_id: c22d\n\tpid: 5757\n\tip: 192.0.2.2\n"
        "The actor is dead because its worker process has died.'>"
    )
    assert explain_error(Error(0, text)) == (
        "ActorDiedError: The actor died unexpectedly before finishing this task. "
        "The actor is dead because its worker process has died.",
        "dead worker",
    )


def test_an_error_without_a_reason_tells_its_code() -> None:
    assert explain_error(Error(5)) == ("no reason given (Flower's error code 5)", "node gone")


@given(st.integers(0, 8), st.text())
def test_every_reason_is_one_short_line(code: int, reason: str) -> None:
    text, _ = explain_error(Error(code, reason))
    assert text
    assert len(text) <= LONGEST_REASON
    assert len(text.splitlines()) == 1


def test_a_request_is_described_by_its_type_and_round() -> None:
    content = RecordDict({"config": ConfigRecord({"server-round": 3})})
    assert describe_request("train", content) == "train in round 3"
    content = RecordDict({"config": ConfigRecord({"server-round": 3, "label-round": 2})})
    assert describe_request("train", content) == "train in label round 2, round 3"
    assert describe_request("query.hello", RecordDict({"config": ConfigRecord()})) == "query.hello"


def test_sites_with_the_same_reason_share_a_line() -> None:
    failures = [
        Failure("train", "a", "boom", "raised"),
        Failure("train", "b", "no reply within 3 s", "time-out"),
        Failure("train", "c", "boom", "raised"),
    ]
    assert group_by_reason(failures) == "  a, c: boom\n  b: no reply within 3 s"
    assert str(failures[0]) == "train: a failed: boom"


SENT = {"weight": np.zeros((2, 3), np.float32), "steps": np.array(4)}


def content(arrays: dict[str, np.ndarray], **metrics: object) -> RecordDict:
    return RecordDict(
        {
            "arrays": ArrayRecord({key: Array(value) for key, value in arrays.items()}),
            "metrics": MetricRecord({key.replace("_", "-"): value for key, value in metrics.items()}),
        }
    )


@pytest.mark.parametrize(
    ("arrays", "metrics", "reason"),
    [
        (SENT, {"num_examples": 5}, None),
        (SENT, {"num_examples": 0.5}, None),
        (SENT, {}, "the reply lacks the metric num-examples"),
        (SENT, {"num_examples": 0}, "num-examples is 0, which is not a finite number above 0"),
        (SENT, {"num_examples": math.nan}, "num-examples is nan, which is not a finite number above 0"),
        (SENT, {"num_examples": [1]}, "num-examples is [1], which is not a finite number above 0"),
        (
            {"steps": np.array(4)},
            {"num_examples": 5},
            "the reply lacks the array weight (1 of 2 are missing)",
        ),
        (
            SENT | {"more": np.zeros(1)},
            {"num_examples": 5},
            "the reply has an array more that was not sent (1 such arrays)",
        ),
        (
            SENT | {"weight": np.zeros((3, 2))},
            {"num_examples": 5},
            "the array weight has shape (3, 2), sent was (2, 3)",
        ),
        (
            SENT | {"weight": np.array([[0, 1, 2], [3, np.inf, 5]])},
            {"num_examples": 5},
            "NaN or infinite values in 1 of 2 arrays, first in weight",
        ),
    ],
)
def test_train_replies_are_checked(arrays: dict, metrics: dict, reason: str | None) -> None:
    assert unusable_train_reply(content(SENT, num_examples=1), content(arrays, **metrics)) == reason


def test_train_replies_hold_one_record_of_each_kind() -> None:
    good = content(SENT, num_examples=1)
    no_arrays = RecordDict({"metrics": good["metrics"]})
    two_metrics = RecordDict(dict(good) | {"more": MetricRecord()})
    assert unusable_train_reply(good, no_arrays) == "the reply holds 0 array records where one is expected"
    assert unusable_train_reply(good, two_metrics) == "the reply holds 2 metric records where one is expected"


def test_arrays_are_compared_with_the_record_of_the_same_name() -> None:
    sent = content(SENT, num_examples=1)
    sent["control"] = ArrayRecord({"other": Array(np.zeros(1))})
    assert unusable_train_reply(sent, content(SENT, num_examples=1)) is None


def test_bytes_that_are_no_array_are_a_reason() -> None:
    reply = content(SENT, num_examples=1)
    reply["arrays"]["weight"] = Array("float32", (2, 3), "numpy.ndarray", b"PK\x03\x04 not an array")
    assert "the array weight cannot be read" in str(
        unusable_train_reply(content(SENT, num_examples=1), reply)
    )


def test_a_shape_that_lies_is_a_reason() -> None:
    reply = content(SENT, num_examples=1)
    reply["arrays"]["weight"] = Array("float32", (2, 3), "numpy.ndarray", Array(np.zeros(2)).data)
    assert (
        unusable_train_reply(content(SENT, num_examples=1), reply)
        == "the array weight cannot be read: the data are no NumPy array of dtype float32 and shape (2, 3)"
    )
