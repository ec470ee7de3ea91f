"""Averages of the metrics of replies."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from flwr.app import Message, MetricRecord, RecordDict

MetricsAggregation = Callable[[list[RecordDict], str], MetricRecord]


def with_examples(replies: Iterable[Message], weighted_by_key: str) -> list[Message]:
    """Return the replies but those that say they measured nothing, as a client without test images does."""
    return [
        reply
        for reply in replies
        if not reply.has_content()
        or all(record.get(weighted_by_key) != 0 for record in reply.content.metric_records.values())
    ]


def average_metrics(records: list[RecordDict], weighted_by_key: str) -> MetricRecord:
    """Return the weighted average of each number that all replies have.

    As Flower's own, but clients may report other metrics than their neighbours, lists are left out (label
    coverage is one), and without usable weights all replies count the same.
    """
    return average([_flat(record) for record in records], weighted_by_key)


def _flat(record: RecordDict) -> dict[str, Any]:
    return {key: value for metrics in record.metric_records.values() for key, value in metrics.items()}


def average(metrics: Sequence[dict[str, Any]], weighted_by_key: str) -> MetricRecord:
    """Return the weighted average of each number that all of these metrics have."""
    weights = [metric.get(weighted_by_key, 0) for metric in metrics]
    usable = (isinstance(weight, int | float) and 0 <= weight < math.inf for weight in weights)
    if not all(usable) or not sum(weights):
        weights = [1.0] * len(metrics)
    total = float(sum(weights))
    result = MetricRecord()
    for key in metrics[0] if metrics else ():
        values = [value for metric in metrics if isinstance(value := metric.get(key), int | float)]
        if key != weighted_by_key and len(values) == len(metrics):
            result[key] = sum(w * value for w, value in zip(weights, values, strict=True)) / total
    return result
