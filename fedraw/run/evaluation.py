"""Evaluation beside a run: it delays no arrival and draws nothing that the schedule draws."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from flwr.app import ArrayRecord, Message, MetricRecord

from fedraw.mailbox import Mailbox

EvaluateFunction = Callable[[int, ArrayRecord], MetricRecord | None]


class VersionEvaluation:
    """Calls the server's evaluation function.

    At once where time is computed. In a thread of its own, one version after the other, where time is real.
    ``results`` takes what it returns, by version.
    """

    def __init__(
        self, function: EvaluateFunction | None, results: dict[int, MetricRecord], background: bool
    ) -> None:
        self.results = results
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


def ask_free_clients(
    messages: Iterable[Message],
    training: Mapping[str, int],
    mailbox: Mailbox,
    timeout: float,
    patient: bool,
) -> list[Message]:
    """Send messages to the clients that are free, and return their replies.

    A client gets no message while it works on another one.

    Parameters
    ----------
    messages
        One message a client.
    training
        Node of each message to a client that trains, by its id.
    timeout
        Real seconds to wait for replies.
    patient
        Wait for the clients that train, where that takes no time on the run's clock; else they are left out.
    """
    if patient:
        mailbox.wait(training, timeout)
    busy = {node for message_id, node in training.items() if not mailbox.has(message_id)}
    free = [message for message in messages if message.metadata.dst_node_id not in busy]
    sent = [message_id for message in free if (message_id := mailbox.send(message))]
    mailbox.wait(sent, timeout)
    replies = [mailbox.take(message_id) for message_id in sent if mailbox.has(message_id)]
    for message_id in sent:
        mailbox.forget(message_id)
    return replies
