"""Evaluation beside a run: it delays no arrival and draws nothing that the schedule draws."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from flwr.app import ArrayRecord, MetricRecord

EvaluateFunction = Callable[[int, ArrayRecord], MetricRecord | None]


class ServerEvaluation:
    """Calls the server's evaluation function.

    At once where time is computed. In a thread of its own, one version after the other, where time is real.
    """

    def __init__(self, function: EvaluateFunction | None, background: bool) -> None:
        self.results: dict[int, MetricRecord] = {}
        self._function = function
        self._executor = ThreadPoolExecutor(1, "evaluation") if function and background else None
        self._running: dict[int, Future[MetricRecord | None]] = {}

    def submit(self, version: int, arrays: ArrayRecord) -> None:
        """Evaluate a version, now or later."""
        if self._function is None:
            return
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
