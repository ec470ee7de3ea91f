"""Evaluation beside a run: it delays no arrival and draws nothing that the schedule draws."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from flwr.app import ArrayRecord, MetricRecord

if TYPE_CHECKING:
    from fedraw.run.loop import AsynchronousRun

EvaluateFunction = Callable[[int, ArrayRecord], MetricRecord | None]


class ServerEvaluation:
    """Calls the server's evaluation function.

    At once where time is computed. In a thread of its own, one version after the other, where time is real.
    """

    def __init__(self, function: EvaluateFunction | None, background: bool) -> None:
        self.results: dict[int, MetricRecord] = {}
        self._function = function
        self._executor = ThreadPoolExecutor(1, "evaluation") if background else None
        self._running: dict[int, Future[MetricRecord | None]] = {}

    @property
    def wanted(self) -> bool:
        """Whether there is a function to call."""
        return self._function is not None

    def submit(self, version: int, arrays: ArrayRecord) -> None:
        """Evaluate a version, now or later."""
        assert self._function is not None
        if self._executor is None:
            self._keep(version, self._function(version, arrays))
        else:
            self._running[version] = self._executor.submit(self._function, version, arrays)

    def collect(self, wait: bool = False) -> None:
        """Take the results that are there, or wait for all; an exception of the function is raised here."""
        for version in [v for v, future in self._running.items() if wait or future.done()]:
            self._keep(version, self._running.pop(version).result())

    def _keep(self, version: int, metrics: MetricRecord | None) -> None:
        if metrics is not None:
            self.results[version] = metrics

    def close(self) -> None:
        """Start no further evaluation."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)


def evaluate_clients(run: "AsynchronousRun", version: int) -> MetricRecord | None:
    """Let clients evaluate a version and return the average of their metrics, or None.

    A client gets no message while it works on another one. Where time is computed, those that train are
    waited for, which takes no time on the run's clock; where it is real, they are left out.
    """
    strategy, mailbox = run.strategy, run.mailbox
    if strategy.fraction_evaluate == 0 or strategy.timing_only:
        return None
    arrays = run.versions.record(version)
    messages = list(strategy.configure_evaluate(version, arrays, run.evaluate_config, run.grid))
    training = {job.message_id: job.node for job in run.jobs.values() if job.message_id}
    if run.clock.virtual:
        mailbox.wait(training, run.timeout)
    busy = {node for message_id, node in training.items() if not mailbox.has(message_id)}
    free = [message for message in messages if message.metadata.dst_node_id not in busy]
    sent = [message_id for message in free if (message_id := mailbox.send(message))]
    mailbox.wait(sent, run.timeout)
    replies = [mailbox.take(message_id) for message_id in sent if mailbox.has(message_id)]
    for message_id in sent:
        mailbox.forget(message_id)
    return strategy.aggregate_evaluate(version, replies)
