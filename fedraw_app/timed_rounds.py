"""Synchronous rounds on the same clock and in the same books as asynchronous runs, so that both compare."""

import functools
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from flwr.app import Message

from federation import records
from federation.messages.grid import ClientGrid
from fedraw.delays import DelayModel
from fedraw.randomness import generator
from fedraw.run.events import Event
from fedraw.run.influence import Influence


class TimedGrid(ClientGrid):
    """A grid that tells what each round of training would have taken: as long as its slowest client.

    Parameters
    ----------
    clients
        The grid behind it; its sites are known.
    delays
        How long a job takes in virtual time; None takes real time.
    seed
        Seed of the delays; each job has its own generator, the same as in an asynchronous run.
    rare_sites
        The group whose influence is measured.
    events
        Takes the event log.

    Attributes
    ----------
    now
        Seconds since the start.
    influence
        Counts of the run.
    """

    def __init__(
        self,
        clients: ClientGrid,
        delays: DelayModel | None,
        seed: int,
        rare_sites: Collection[str],
        events: Callable[[Event], None],
    ) -> None:
        super().__init__(clients.inner, clients.sites, clients.num_classes, clients.run_key)
        self.share_books(clients)
        self.now = 0.0
        self.influence = Influence()
        self._delays = delays
        self._seed = seed
        self._rare_sites = rare_sites
        self._emit = events
        self._jobs: Counter[str] = Counter()
        self._version = 0
        self._started = time.monotonic()

    def state(self) -> dict[str, Any]:
        """Return what ``restore`` needs, as JSON."""
        return {
            "now": self.now,
            "jobs": dict(self._jobs),
            "version": self._version,
            "influence": self.influence.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on after the rounds of a state."""
        self.now, self._jobs, self._version = state["now"], Counter(state["jobs"]), state["version"]
        self.influence = Influence.restored(state["influence"])
        self._started = time.monotonic() - self.now

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Send messages and return the replies; a round of training passes its time and is recorded."""
        requests = list(messages)
        replies = super().send_and_receive(requests, timeout=timeout)
        if requests and requests[0].metadata.message_type == records.TRAIN:
            self._record(requests, replies)
        return replies

    def _record(self, requests: list[Message], replies: list[Message]) -> None:
        sites = [self.site_name(message.metadata.dst_node_id) for message in requests]
        examples = {
            self.site_name(reply.metadata.src_node_id): float(
                reply.content.metric_records[records.METRICS][records.NUM_EXAMPLES]  # type: ignore[arg-type]
            )
            for reply in replies
        }
        jobs = {site: self._jobs[site] for site in sites}
        self._jobs.update(sites)
        for site in sites:
            self._emit(Event(self.now, "dispatch", site, jobs[site], self._version))
        for end, site in sorted((self._end(site, jobs[site]), site) for site in sites):
            self.now = end
            if site in examples:
                self.influence.received += 1
                self._emit(Event(end, "arrive", site, jobs[site], self._version, 0))
            else:
                self.influence.failed["no usable reply"] += 1
                event = Event(end, "fail", site, jobs[site], self._version, reason="no usable reply")
                self._emit(event)
        self._version += 1
        total = sum(examples.values())
        weights = {site: examples[site] / total for site in sorted(examples)}
        for site, weight in weights.items():
            self._emit(Event(self.now, "aggregate", site, jobs[site], self._version, 0, weight))
        self._emit(Event(self.now, "publish", "", None, self._version))
        self.influence.flush(
            self._version, self.now, list(weights), [0] * len(weights), weights, self._rare_sites, 0.0
        )

    def _end(self, site: str, job: int) -> float:
        if self._delays is None:
            return time.monotonic() - self._started
        rng = functools.partial(generator, self._seed, "delay", site, job)
        return self.now + self._delays.duration(site, job, rng)
