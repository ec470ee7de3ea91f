"""What may travel between a server and its clients."""

from collections.abc import Collection

from federation import records
from tests.inprocess import InProcessGrid

PER_CLASS = {records.LABEL_COVERAGE, records.CLASS_COUNTS}


def kinds_that_travelled(grid: InProcessGrid, model_keys: Collection[str], num_classes: int) -> set[str]:
    """Return the message types of a run, after every message was held against ``federation.records``.

    No array but the model's, no key that is not listed, and no list but those with a number for each class.
    """
    kinds = set()
    for messages, listed in ((grid.sent, records.REQUESTS), (grid.received, records.REPLIES)):
        for message in messages:
            kind = message.metadata.message_type
            kinds.add(kind)
            contents, may = message.content, listed[kind]
            for name, arrays in contents.array_records.items():
                assert may.arrays
                assert name == records.ARRAYS
                assert set(arrays) == set(model_keys)
            for name, config in contents.config_records.items():
                assert name == records.CONFIG
                assert set(config) <= may.config
                assert not any(isinstance(value, list | bytes) for value in config.values())
            for name, metrics in contents.metric_records.items():
                assert name == records.METRICS
                assert set(metrics) <= may.metrics | may.simulation_metrics
                lists = {key: value for key, value in metrics.items() if isinstance(value, list)}
                assert set(lists) <= PER_CLASS
                assert all(len(value) == num_classes for value in lists.values())
    return kinds
