"""Which replies can be used: what a client answers is checked before anything is made of it.

A reply that cannot be used is a failure of its client, with its name and the reason, and the others go on.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from federation import records
from fedraw.arrays import read_array
from fedraw.failures import shorten


def unusable_reply(request: Message, reply: RecordDict, num_classes: int | None = None) -> str | None:
    """Return why the reply to a request cannot be used, or None if it can.

    Parameters
    ----------
    num_classes
        Length of per-class lists; None where it is not known. Message types that are not ours pass.
    """
    kind = request.metadata.message_type
    if kind == records.TRAIN:
        reason = unusable_train_reply(request.content, reply)
        return reason or _unusable_coverage(reply, num_classes)
    if kind not in records.REPLIES:
        return None
    metrics = reply.metric_records.get(records.METRICS)
    if metrics is None:
        return f"the reply lacks the record {records.METRICS}"
    held = {*metrics, *reply.config_records.get(records.CONFIG, ConfigRecord())}
    if missing := sorted(records.REQUIRED[kind] - held):
        return f"the reply lacks {missing[0]}"
    for key, value in metrics.items():
        if key in _RULES and not _RULES[key][0](value):
            return f"{key} is {value}, which is not {_RULES[key][1]}"
    return _unusable_coverage(reply, num_classes) or _unusable_selection(request, metrics)


def _unusable_coverage(reply: RecordDict, num_classes: int | None) -> str | None:
    for metrics in reply.metric_records.values():
        for key in (records.LABEL_COVERAGE, records.CLASS_COUNTS):
            value = metrics.get(key)
            if value is not None and num_classes is not None and not _has_length(value, num_classes):
                return f"{key} is {value}, which is not a list of {num_classes} numbers, one a class"
    return None


def _unusable_selection(request: Message, metrics: MetricRecord) -> str | None:
    if request.metadata.message_type != records.SELECT:
        return None
    asked: Any = request.content.config_records[records.CONFIG][records.BUDGET]
    budget: Any = metrics[records.BUDGET]
    if budget > asked:
        return f"{records.BUDGET} is {budget}, more than the {asked} that were asked for"
    counts: Any = metrics.get(records.CLASS_COUNTS)
    if counts is not None and sum(counts) != budget:
        return f"{records.CLASS_COUNTS} add up to {sum(counts)}, and {budget} images were labelled"
    return None


def _has_length(value: Any, length: int) -> bool:
    return isinstance(value, list) and len(value) == length


def _is_share(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value <= 1


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and value >= 0


def _is_loss(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _is_bit(value: Any) -> bool:
    return isinstance(value, int) and value in (0, 1)


_SHARE = (_is_share, "a number from 0 to 1")
_COUNT = (_is_count, "a whole number from 0 on")
_RULES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys((records.GAMMA, records.DISCREPANCY, records.MODEL_SCORE, records.ACCURACY), _SHARE),
    **dict.fromkeys((records.POOL_SIZE, records.NUM_EXAMPLES, records.NUM_LABELLED, records.BUDGET), _COUNT),
    records.LOSS: (_is_loss, "a finite number"),
    records.GLOBAL_MODEL: (_is_bit, "0 or 1"),
    records.LABEL_COVERAGE: (
        lambda value: isinstance(value, list) and all(map(_is_bit, value)),
        "a list of zeros and ones",
    ),
    records.CLASS_COUNTS: (
        lambda value: isinstance(value, list) and all(map(_is_count, value)),
        "a list of whole numbers from 0 on",
    ),
}


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
        if array.dtype != sent[key].dtype and not _both_floats(array.dtype, sent[key].dtype):
            return f"the array {key} has type {array.dtype}, sent was {sent[key].dtype}"
    return None


def _both_floats(first: str, second: str) -> bool:
    return np.issubdtype(np.dtype(first), np.floating) and np.issubdtype(np.dtype(second), np.floating)


def _not_finite(arrays: ArrayRecord) -> str | None:
    at_fault = []
    for key, array in arrays.items():
        try:
            values = read_array(array)
        except (TypeError, ValueError) as error:
            return shorten(f"the array {key} cannot be read: {error}")
        if np.issubdtype(values.dtype, np.inexact) and not np.isfinite(values).all():
            at_fault.append(key)
    if at_fault:
        return f"NaN or infinite values in {len(at_fault)} of {len(arrays)} arrays, first in {at_fault[0]}"
    return None
