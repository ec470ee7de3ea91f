"""The one way in which the server talks to its clients.

``ClientGrid`` stands between a strategy and Flower's Grid. Flower's own synchronous strategies run on it
unchanged; what differs is that replies come in the order of the sites, so that sums of floats are the same in
every run, that a client has one message at a time, that waiting costs milliseconds where Flower sleeps 0.1 s
(simulation) or 3 s (deployment), and that a failed client has a name and a reason.
"""

import logging
import math
import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.superlink.grid import HttpGrid, InMemoryGrid

from federation import records
from federation.errors import AllClientsFailedError, DeadWorkerError
from federation.messages.failures import (
    Failure,
    Kind,
    describe_request,
    explain_dead_worker,
    explain_error,
    group_by_reason,
)
from federation.messages.replies import unusable_reply

logger = logging.getLogger("rarefl")

SHORTEST_WAIT, WAIT_GROWTH = 0.001, 1.5
LONGEST_WAIT, LONGEST_WAIT_HTTP = 0.05, 0.5  # a poll over HTTP costs the SuperLink about 10 ms


@dataclass(frozen=True)
class Site:
    """A client of the federation: Flower's id of its node (random in each run) and its own name."""

    node_id: int
    name: str


class ClientGrid(Grid):
    """Flower's Grid with named sites, one message in flight per node, and failures that are told.

    Parameters
    ----------
    inner
        The Grid that Flower gave to the ServerApp.
    sites
        The federation's sites in its order; known after the hello, see ``set_sites``.
    num_classes
        Length of the per-class lists that clients answer with, which is checked; None checks none.
    run_key
        Name of the run, by which clients find what they keep of it.

    Attributes
    ----------
    array_bytes
        By site, bytes of arrays sent to it and received from it.
    failures
        Every failure so far, in order.
    """

    def __init__(
        self, inner: Grid, sites: Sequence[Site] = (), num_classes: int | None = None, run_key: str = ""
    ) -> None:
        self.inner = inner
        self.num_classes = num_classes
        self.run_key = run_key
        self.failures: list[Failure] = []
        self.array_bytes: dict[str, dict[str, int]] = {}
        self._longest_wait = LONGEST_WAIT_HTTP if isinstance(inner, HttpGrid) else LONGEST_WAIT
        self._unanswered: dict[int, str] = {}  # requests given up: their nodes may still be at work on them
        self.set_sites(sites)

    @property
    def simulated(self) -> bool:
        """Whether the clients are simulated in this process."""
        return isinstance(self.inner, InMemoryGrid)

    @property
    def sites(self) -> tuple[Site, ...]:
        """The sites in their order; empty before the hello."""
        return self._sites

    def set_sites(self, sites: Sequence[Site]) -> None:
        """Name the sites and fix their order; all of them participate."""
        self._sites = tuple(sites)
        self._rank = {site.node_id: rank for rank, site in enumerate(self._sites)}
        self._names = {site.node_id: site.name for site in self._sites}
        self._participants: tuple[int, ...] | None = None

    def share_books(self, other: "ClientGrid") -> None:
        """Keep failures, traffic, busy nodes and participants in common with another grid of the same run."""
        self.failures, self.array_bytes = other.failures, other.array_bytes
        self._unanswered, self._participants = other._unanswered, other._participants

    def set_participants(self, node_ids: Iterable[int] | None) -> None:
        """Let ``get_node_ids`` return only these nodes, or all sites again with None.

        A strategy of Flower whose fraction is 1 then sends to exactly these nodes. Its minimum of nodes must
        not be above their number, or Flower waits for more for ever.
        """
        if node_ids is None:
            self._participants = None
            return
        chosen = set(node_ids)
        if unknown := chosen - self._rank.keys():
            raise ValueError(f"nodes {sorted(unknown)} are not among the sites")
        self._participants = tuple(site.node_id for site in self._sites if site.node_id in chosen)

    def site_name(self, node_id: int) -> str:
        """Return the name of a node's site, or its number where it has no name."""
        return self._names.get(node_id, f"node {node_id}")

    def set_run(self, run: Run) -> None:
        """Pass the run on to Flower's Grid."""
        self.inner.set_run(run)

    @property
    def run(self) -> Run:
        """Flower's run."""
        return self.inner.run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Create a message; Flower has deprecated this way in favour of ``Message(...)``."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> list[int]:
        """Return the participating nodes in the order of the sites; before the hello, the connected nodes.

        A site whose node has gone stays in the list, so that each round without it is a named failure.
        """
        if self._participants is not None:
            return list(self._participants)
        if self._sites:
            return [site.node_id for site in self._sites]
        return sorted(self.inner.get_node_ids())

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Send a copy of each message and return their ids, "" for a message that was not delivered."""
        return self._push([_copy(message) for message in messages])

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return the replies that have come to these messages, error replies among them."""
        ids = [message_id for message_id in message_ids if message_id]
        replies = list(self.inner.pull_messages(ids)) if ids else []
        for reply in replies:
            self._count_bytes(reply, reply.metadata.src_node_id, "received")
        return replies

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Send messages and return the usable replies in the order of the sites.

        Parameters
        ----------
        messages
            Several messages to one node are sent one after the other.
        timeout
            Seconds to wait for all replies; None waits for ever.

        Returns
        -------
        Replies with content. Replies to ``train`` are checked to hold what was sent for, in finite numbers.
        What is left out is logged and kept in ``failures``.

        Raises
        ------
        DeadWorkerError
            A Ray worker died.
        AllClientsFailedError
            There was something to send and no usable reply.
        """
        exchange = _Exchange([_copy(message) for message in messages])
        seconds = math.inf if timeout is None else timeout
        deadline = time.monotonic() + seconds
        failed = len(self.failures)
        wait = SHORTEST_WAIT
        while True:
            self._send_next(exchange)
            if not exchange.open:
                break
            freed = self._collect(exchange)
            left = deadline - time.monotonic()
            if left <= 0:
                self._give_up(exchange, seconds)
                break
            if freed:
                wait = SHORTEST_WAIT
            else:
                time.sleep(min(wait, left))
                wait = min(wait * WAIT_GROWTH, self._longest_wait)
        self._leave_out_other_metrics(exchange)
        if exchange.requests and not exchange.replies:
            order = {site.name: rank for rank, site in enumerate(self._sites)}
            failures = sorted(self.failures[failed:], key=lambda failure: order.get(failure.site, -1))
            raise AllClientsFailedError(
                f"{failures[0].what}: no client gave a usable answer\n{group_by_reason(failures)}",
                [failure.reason for failure in failures],
            )
        answered = sorted(exchange.replies, key=lambda index: (*self._place(exchange.requests[index]), index))
        return [exchange.replies[index] for index in answered]

    def _send_next(self, exchange: "_Exchange") -> None:
        """Send the first waiting request of every node that is free."""
        batch = exchange.next_requests(busy=self._unanswered.keys())
        ids = self._push([exchange.requests[index] for index in batch])
        for index, message_id in zip(batch, ids, strict=True):
            if message_id:
                exchange.in_flight[message_id] = index
            else:
                reason = "not delivered: the node is not connected, or the message is too large"
                self._fail(exchange, index, reason, "not delivered")

    def _collect(self, exchange: "_Exchange") -> bool:
        """Take in the replies that have come; return whether a node has become free."""
        late = {message_id: node_id for node_id, message_id in self._unanswered.items()}
        free = False
        for reply in self.pull_messages([*exchange.in_flight, *late]):
            message_id = reply.metadata.reply_to_message_id
            if message_id in late:
                free |= self._unanswered.pop(late[message_id], None) is not None
            elif message_id in exchange.in_flight:
                self._accept(exchange, exchange.in_flight.pop(message_id), reply)
                free = True
        return free

    def _accept(self, exchange: "_Exchange", index: int, reply: Message) -> None:
        request = exchange.requests[index]
        if reply.has_error():
            reason, kind = explain_error(reply.error)
            self._fail(exchange, index, reason, kind)
            if kind == "dead worker":
                raise DeadWorkerError(explain_dead_worker(self.failures[-1]))
            return
        reason_against = unusable_reply(request, reply.content, self.num_classes)
        if reason_against is not None:
            self._fail(exchange, index, reason_against, "unusable")
            return
        exchange.replies[index] = reply

    def _leave_out_other_metrics(self, exchange: "_Exchange") -> None:
        """Leave out replies to ``train`` with other metrics than most replies; Flower refuses a mix."""
        keys = {
            index: tuple(sorted(*reply.content.metric_records.values()))
            for index, reply in exchange.replies.items()
            if exchange.requests[index].metadata.message_type == records.TRAIN
        }
        if len(set(keys.values())) < 2:
            return
        usual, _ = Counter(keys[index] for index in sorted(keys)).most_common(1)[0]
        for index, names in sorted(keys.items()):
            if names != usual:
                del exchange.replies[index]
                reason = f"its metrics are {', '.join(names)}, those of most clients {', '.join(usual)}"
                self._fail(exchange, index, reason, "unusable")

    def _give_up(self, exchange: "_Exchange", seconds: float) -> None:
        """Count what is unanswered as failed; its nodes get nothing new until they have answered."""
        for message_id, index in exchange.in_flight.items():
            self._unanswered[exchange.requests[index].metadata.dst_node_id] = message_id
            self._fail(exchange, index, f"no reply within {seconds:g} s", "time-out")
        for queue in exchange.waiting.values():
            for index in queue:
                self._fail(
                    exchange, index, f"still busy with an earlier message after {seconds:g} s", "time-out"
                )

    def _fail(self, exchange: "_Exchange", index: int, reason: str, kind: Kind) -> None:
        request = exchange.requests[index]
        what = describe_request(request.metadata.message_type, request.content)
        failure = Failure(what, self.site_name(request.metadata.dst_node_id), reason, kind)
        self.failures.append(failure)
        logger.warning("%s", failure)

    def _push(self, messages: list[Message]) -> list[str]:
        if not messages:
            return []
        ids = list(self.inner.push_messages(messages))
        for message in messages:
            self._count_bytes(message, message.metadata.dst_node_id, "sent")
        if len(ids) == len(messages):
            return [message_id or "" for message_id in ids]
        # Flower leaves out the ids of undelivered messages in simulation, and all ids over HTTP where the
        # messages are too large; it notes in each message the id under which it tried to send it.
        return [
            message.metadata.message_id if message.metadata.message_id in ids else "" for message in messages
        ]

    def _count_bytes(self, message: Message, node_id: int, direction: str) -> None:
        if not message.has_content():
            return
        records_of_arrays = message.content.array_records.values()
        if count := sum(len(array.data) for arrays in records_of_arrays for array in arrays.values()):
            told = self.array_bytes.setdefault(self.site_name(node_id), {"sent": 0, "received": 0})
            told[direction] += count

    def _place(self, request: Message) -> tuple[int, int]:
        """Sort key of requests: sites in their order, then nodes without a name."""
        node_id = request.metadata.dst_node_id
        return self._rank.get(node_id, len(self._rank)), node_id


@dataclass
class _Exchange:
    """The state of one ``send_and_receive``; requests go by their index."""

    requests: list[Message]
    in_flight: dict[str, int] = field(default_factory=dict)
    replies: dict[int, Message] = field(default_factory=dict)
    waiting: dict[int, deque[int]] = field(init=False)

    def __post_init__(self) -> None:
        self.waiting = {}
        for index, request in enumerate(self.requests):
            self.waiting.setdefault(request.metadata.dst_node_id, deque()).append(index)

    @property
    def open(self) -> bool:
        """Whether a request is in flight or waits to be sent."""
        return bool(self.in_flight) or any(self.waiting.values())

    def next_requests(self, busy: Iterable[int]) -> list[int]:
        """Take the next request of every node that has none in flight here and is not busy otherwise."""
        taken = {self.requests[index].metadata.dst_node_id for index in self.in_flight.values()} | set(busy)
        return [queue.popleft() for node_id, queue in self.waiting.items() if queue and node_id not in taken]


def _copy(message: Message) -> Message:
    """Return a message of the same content in new records; arrays are shared.

    A simulated client gets the server's very objects, so a record that the server changes after sending
    would change for the client as well.
    """
    content = RecordDict()
    for name, record in message.content.items():
        if isinstance(record, ConfigRecord):
            record = ConfigRecord({key: list(v) if isinstance(v, list) else v for key, v in record.items()})  # type: ignore[misc]
        elif isinstance(record, MetricRecord):
            record = MetricRecord({key: list(v) if isinstance(v, list) else v for key, v in record.items()})
        content[name] = record
    metadata = message.metadata
    return Message(
        content, metadata.dst_node_id, metadata.message_type, ttl=metadata.ttl, group_id=metadata.group_id
    )
