"""From a client's reply to an update, or to the reason why there is none."""

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message

from fedraw.aggregation import Arrays, wide
from fedraw.arrays import is_buffer, read_array, restore_dtype
from fedraw.failures import Kind, explain_error

# What the event log calls the sorts of failure that an error reply can have.
REASONS: dict[Kind, str] = {
    "raised": "error",
    "crashed": "error",
    "expired": "timeout",
    "node gone": "node-gone",
    "dead worker": "dead-worker",
}


class ReplyError(Exception):
    """A reply gives no update. ``reason`` is one word of a fixed list, for counting."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason


@dataclass(slots=True)
class Update:
    """What a reply brings; see ``Entry`` for the fields."""

    deltas: Arrays = field(default_factory=dict)
    values: Arrays = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    examples: float | None = None


def read_update(
    reply: Message,
    sent: Arrays,
    *,
    arrays_key: str,
    examples_key: str,
    examples_needed: bool,
    buffer_keys: Collection[str] | None,
) -> Update:
    """Return the update that a reply brings against the arrays that were sent.

    Raises
    ------
    ReplyError
        With reason ``error`` (the client raised), ``dead-worker``, ``node-gone``, ``timeout`` (the message
        expired), ``arrays`` (other keys, shapes or types than those sent), ``not-finite``, or ``metrics`` (no
        usable number of examples where weights need it).
    """
    if reply.has_error():
        detail, kind = explain_error(reply.error)
        raise ReplyError(REASONS[kind], detail)
    metrics = {
        key: value for record in reply.content.metric_records.values() for key, value in record.items()
    }
    examples = _examples(metrics.get(examples_key))
    if examples is None and examples_needed:
        raise ReplyError("metrics", f"'{examples_key}' is {metrics.get(examples_key)!r}")
    records = reply.content.array_records
    if arrays_key not in records and len(records) != 1:
        raise ReplyError("arrays", f"the reply has array records {list(records)}, expected '{arrays_key}'")
    record = records[arrays_key] if arrays_key in records else next(iter(records.values()))
    deltas, values = _difference(record, sent, buffer_keys)
    return Update(deltas, values, metrics, examples)


def _examples(value: Any) -> float | None:
    usable = isinstance(value, int | float) and math.isfinite(value) and value >= 0
    return float(value) if usable else None


def _difference(
    record: ArrayRecord, sent: Arrays, buffer_keys: Collection[str] | None
) -> tuple[Arrays, Arrays]:
    """Return the change of each parameter, and the value of each buffer and of each integer array."""
    if set(record) != set(sent):
        odd = sorted(set(record) ^ set(sent))
        raise ReplyError("arrays", f"keys differ from those sent: {', '.join(odd[:5])}")
    deltas, values = {}, {}
    for key, start in sent.items():
        try:
            array = read_array(record[key])
        except (TypeError, ValueError) as error:
            raise ReplyError("arrays", f"'{key}' cannot be read: {error}") from error
        if array.shape != start.shape:
            raise ReplyError("arrays", f"'{key}' has shape {array.shape}, sent was {start.shape}")
        if array.dtype.kind not in "fiub":
            raise ReplyError("arrays", f"'{key}' has dtype {array.dtype}, sent was {start.dtype}")
        if start.dtype.kind == "f" and not is_buffer(key, buffer_keys):
            deltas[key] = checked = np.subtract(array, start, dtype=wide(start.dtype))
        else:
            with np.errstate(over="ignore", invalid="ignore"):
                values[key] = checked = restore_dtype(array, start.dtype)
        if not (_finite(array) and _finite(checked)):
            raise ReplyError("not-finite", f"'{key}' has values that are not finite")
        if start.dtype.kind != "f" and not np.array_equal(checked, np.rint(array)):
            raise ReplyError("arrays", f"'{key}' has values that {start.dtype}, as it was sent, cannot hold")
    return deltas, values


def _finite(array: np.ndarray) -> bool:
    """Tell whether all values are finite; the sum is a first look without a mask of the array's size."""
    if array.dtype.kind != "f":
        return True
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(array.sum())) or bool(np.isfinite(array).all())
