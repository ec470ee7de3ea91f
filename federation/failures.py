"""Failures of clients: what was asked, which site failed, and why, in a line that can be read."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from flwr.app import ArrayRecord, Error, RecordDict
from flwr.common.constant import ErrorCode

from federation import records

Kind = Literal[
    "raised", "time-out", "not delivered", "expired", "node gone", "crashed", "unusable", "dead worker"
]

LONGEST_REASON = 300

_KINDS: dict[int, Kind] = {
    ErrorCode.UNKNOWN: "dead worker",
    ErrorCode.MESSAGE_UNAVAILABLE: "expired",
    ErrorCode.REPLY_MESSAGE_UNAVAILABLE: "expired",
    ErrorCode.NODE_UNAVAILABLE: "node gone",
    ErrorCode.CLIENT_APP_CRASHED: "crashed",
}

_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_ACTOR_DETAILS = re.compile(r"\n\t\w+: [^\n]*")  # ids and addresses that Ray puts before the cause
_FLOWER_REASON = re.compile(r"^<class '(?P<type>[^']+)'>:<'(?P<text>.*)'>$", re.DOTALL)
_MESSAGE_OF_CLIENT = "Exception ClientAppException occurred. Message:"


@dataclass(frozen=True)
class Failure:
    """One request that a client did not answer, or answered with nothing usable.

    Attributes
    ----------
    what
        The message type and, where it has one, the round: ``"train in round 3"``.
    site
        The name of the site.
    reason
        One line, for people.
    kind
        The sort of failure, for programs.
    """

    what: str
    site: str
    reason: str
    kind: Kind

    def __str__(self) -> str:
        return f"{self.what}: {self.site} failed: {self.reason}"


def describe_request(message_type: str, content: RecordDict) -> str:
    """Return the message type and the rounds that the request names."""
    named = ((records.LABEL_ROUND, "label round"), (records.SERVER_ROUND, "round"))
    rounds = [
        f"{word} {config[key]!r}"
        for config in content.config_records.values()
        for key, word in named
        if key in config
    ]
    return f"{message_type} in {', '.join(rounds)}" if rounds else message_type


def explain_error(error: Error) -> tuple[str, Kind]:
    """Return a one-line reason and the kind of an error reply.

    In simulation the reason that Flower gives is a coloured traceback of several processes; what is kept is
    the client's own exception.
    """
    reason = _ACTOR_DETAILS.sub("", _COLOURS.sub("", error.reason or ""))
    kind: Kind = "dead worker" if "ActorDiedError" in reason else _KINDS.get(error.code, "raised")
    return _shorten(_innermost(reason)) or f"no reason given (Flower's error code {error.code})", kind


def _innermost(reason: str) -> str:
    parts = _FLOWER_REASON.match(reason)
    if parts is None:
        return reason
    text, name = parts["text"], parts["type"].rpartition(".")[2]
    traceback, found, message = text.rpartition(_MESSAGE_OF_CLIENT)
    if not found:
        return f"{name}: {text}" if text.strip() else name
    # The traceback names the exception's type, which the message does not: it ends the part before Ray's own.
    message = message.strip()
    first = re.escape(message.partition("\n")[0])
    pattern = rf"^([A-Za-z_][\w.]*): {first}" if message else r"^([A-Za-z_][\w.]*)$"
    types = re.findall(pattern, traceback, re.MULTILINE)
    name = types[-1].rpartition(".")[2] if types else "exception"
    return f"{name}: {message}" if message else name


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_REASON else f"{line[: LONGEST_REASON - 4]} ..."


def unusable_train_reply(sent: RecordDict, received: RecordDict) -> str | None:
    """Return why a reply to ``train`` cannot be aggregated, or None if it can.

    It can when it holds exactly one ArrayRecord with the keys and shapes that were sent and finite values,
    and exactly one MetricRecord whose ``num-examples`` is finite and positive.
    """
    if len(received.array_records) != 1:
        return f"the reply holds {len(received.array_records)} array records where one is expected"
    if len(received.metric_records) != 1:
        return f"the reply holds {len(received.metric_records)} metric records where one is expected"
    (metrics,) = received.metric_records.values()
    examples = metrics.get(records.NUM_EXAMPLES)
    if examples is None:
        return f"the reply lacks the metric {records.NUM_EXAMPLES}"
    if isinstance(examples, list) or not math.isfinite(examples) or examples <= 0:
        return f"{records.NUM_EXAMPLES} is {examples}, which is not a finite number above 0"
    ((name, arrays),) = received.array_records.items()
    return _unlike(_counterpart(sent, name), arrays) or _not_finite(arrays)


def _counterpart(sent: RecordDict, name: str) -> ArrayRecord | None:
    candidates = sent.array_records
    if len(candidates) == 1:
        return next(iter(candidates.values()))
    return candidates.get(name)


def _unlike(sent: ArrayRecord | None, received: ArrayRecord) -> str | None:
    if sent is None:
        return None
    if missing := [key for key in sent if key not in received]:
        return f"the reply lacks the array {missing[0]} ({len(missing)} of {len(sent)} are missing)"
    if unknown := [key for key in received if key not in sent]:
        return f"the reply has an array {unknown[0]} that was not sent ({len(unknown)} such arrays)"
    for key, array in received.items():
        if tuple(array.shape) != tuple(sent[key].shape):
            return f"the array {key} has shape {tuple(array.shape)}, sent was {tuple(sent[key].shape)}"
    return None


def _not_finite(arrays: ArrayRecord) -> str | None:
    at_fault = []
    for key, array in arrays.items():
        try:
            values = array.numpy()
            shape = values.shape
        except Exception as error:  # whatever NumPy makes of bytes that are no array
            return _shorten(f"the array {key} cannot be read: {error}")
        if shape != tuple(array.shape):
            return f"the array {key} says that its shape is {tuple(array.shape)}, and it is {shape}"
        if np.issubdtype(values.dtype, np.inexact) and not np.isfinite(values).all():
            at_fault.append(key)
    if at_fault:
        return f"NaN or infinite values in {len(at_fault)} of {len(arrays)} arrays, first in {at_fault[0]}"
    return None


def group_by_reason(failures: Sequence[Failure]) -> str:
    """Return one line a reason, with the sites that gave it."""
    sites: dict[str, list[str]] = {}
    for failure in failures:
        sites.setdefault(failure.reason, []).append(failure.site)
    return "\n".join(f"  {', '.join(dict.fromkeys(names))}: {reason}" for reason, names in sites.items())


def explain_dead_worker(failure: Failure) -> str:
    """Return what a dead Ray worker means for a run, and what to change."""
    return (
        f"{failure.what}: the Ray worker that ran {failure.site} died, most often because memory ran out. "
        "Flower keeps a dead worker in its pool, so every later round would silently lose clients; "
        "the run ends here instead.\n"
        "Run fewer workers at once (--federation-config 'client-resources-num-cpus=N' with a larger N), "
        "take a smaller train.batch-size, and look into Ray's logs (/tmp/ray/session_latest/logs).\n"
        f"Ray says: {failure.reason}"
    )
