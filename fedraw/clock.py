"""Clocks: which arrival, time-out or return from a pause is next in an asynchronous run.

Nothing but a clock moves time. The run tells it of every job and every pause, and takes one tick at a time.
"""

import functools
import heapq
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

from flwr.app import Message

from fedraw.delays import Always, Availability, Constant, DelayModel
from fedraw.errors import DelayError, SettingError
from fedraw.mailbox import Mailbox
from fedraw.randomness import generator


class TickKind(IntEnum):
    """What happens at a tick, in the order in which ticks of one instant are taken."""

    ARRIVAL = 0
    TIMEOUT = 1
    WAKE = 2


class Tick(NamedTuple):
    """One thing that happens; ticks are ordered by time, kind, site, sequence."""

    time: float
    kind: TickKind
    site: str
    sequence: int


@dataclass(slots=True)
class Job:
    """One training job of one client, from dispatch to arrival.

    Attributes
    ----------
    site, node
        The client's name and its node now.
    number
        Count of the site's own jobs, from 0.
    version
        Version of the arrays that were sent; the server's knowledge, whatever the client says.
    sequence
        Count of all ticks of the run that were planned; breaks ties.
    started
        Time of dispatch.
    deadline
        Time at which the job counts as failed.
    message_id
        Flower's id of the message; empty when no message was sent (timing only).
    """

    site: str
    node: int
    number: int
    version: int
    sequence: int
    started: float
    deadline: float
    message_id: str = ""


class Clock(ABC):
    """Time of a run, and what happens next in it.

    ``now`` is the time of the last tick. ``virtual`` tells that time is computed: jobs may be resent after a
    restart, and work of the server takes no time.
    """

    virtual: bool
    now: float

    @abstractmethod
    def reset(self, now: float = 0.0) -> None:
        """Forget everything planned and begin at a time."""

    @abstractmethod
    def read(self) -> None:
        """Bring ``now`` up to the present, where time goes on by itself."""

    @abstractmethod
    def available_at(self, site: str, attempt: int) -> float:
        """Return now if the site takes a job, else the time to ask again (infinity: never)."""

    @abstractmethod
    def begin(self, job: Job) -> None:
        """Plan the end of a job that was just dispatched."""

    @abstractmethod
    def wake(self, tick: Tick) -> None:
        """Plan the end of a client's pause."""

    @abstractmethod
    def pending(self) -> bool:
        """Tell whether any pause or (virtual) job is planned."""

    @abstractmethod
    def more_now(self) -> bool:
        """Tell whether another tick belongs to the present instant."""

    @abstractmethod
    def next(
        self, mailbox: Mailbox, jobs: Mapping[int, Job], patience: float
    ) -> tuple[Tick, Message | None] | None:
        """Return the next tick and, for an arrival, its reply (None: no reply came).

        None in the place of a tick means that nothing happened for a while. ``jobs`` are those in flight by
        sequence; ``patience`` are the real seconds to wait for one reply.
        """

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return what ``restore`` needs, as JSON."""

    @abstractmethod
    def restore(self, state: dict[str, Any]) -> None:
        """Go back to a state."""


class VirtualClock(Clock):
    """Computed time for simulation: the same seed gives the same run, however fast the machine is.

    Parameters
    ----------
    delays : DelayModel
        How long each job takes; one virtual second a job by default.
    availability : Availability
        When clients take jobs; always by default.
    seed : int
        Seed of the draws of delays and availability; each job and each attempt has its own generator.
    """

    virtual = True

    def __init__(
        self, delays: DelayModel | None = None, availability: Availability | None = None, seed: int = 0
    ) -> None:
        self.delays = delays or Constant()
        self.availability = availability or Always()
        self.seed = seed
        self.reset()

    def reset(self, now: float = 0.0) -> None:
        """Forget everything planned and begin at a time."""
        self.now = now
        self._planned: list[Tick] = []

    def read(self) -> None:
        """Do nothing: time stands still between ticks."""

    def available_at(self, site: str, attempt: int) -> float:
        """Ask the availability; each attempt of a site has a generator of its own."""
        rng = functools.partial(generator, self.seed, "availability", site, attempt)
        return self.availability.available_at(site, self.now, rng)

    def begin(self, job: Job) -> None:
        """Plan the arrival of a job, or its time-out if that comes first.

        Raises
        ------
        DelayError
            The duration is not above 0, or not finite.
        """
        rng = functools.partial(generator, self.seed, "delay", job.site, job.number)
        duration = self.delays.duration(job.site, job.number, rng)
        if not (duration > 0 and math.isfinite(duration)):
            raise DelayError(
                f"job {job.number} of site '{job.site}' would take {duration} virtual seconds; "
                "a duration must be finite and above 0: check the delay model's settings"
            )
        end = job.started + duration
        kind = TickKind.ARRIVAL if end <= job.deadline else TickKind.TIMEOUT
        heapq.heappush(self._planned, Tick(min(end, job.deadline), kind, job.site, job.sequence))

    def wake(self, tick: Tick) -> None:
        """Plan the end of a client's pause."""
        heapq.heappush(self._planned, tick)

    def pending(self) -> bool:
        """Tell whether anything is planned."""
        return bool(self._planned)

    def more_now(self) -> bool:
        """Tell whether the next tick is at the present time."""
        return bool(self._planned) and self._planned[0].time <= self.now

    def next(
        self, mailbox: Mailbox, jobs: Mapping[int, Job], patience: float
    ) -> tuple[Tick, Message | None] | None:
        """Take the earliest tick and wait for its reply; others that come first are kept."""
        tick = heapq.heappop(self._planned)
        self.now = tick.time
        if tick.kind is TickKind.WAKE:
            return tick, None
        message_id = jobs[tick.sequence].message_id
        if not message_id:
            return tick, None
        # Also after a virtual time-out: a node that still works on a message must not get a second one.
        mailbox.wait([message_id], patience)
        reply = mailbox.take(message_id) if mailbox.has(message_id) else None
        mailbox.forget(message_id)
        return tick, reply

    def state(self) -> dict[str, Any]:
        """Return the time and all that is planned."""
        return {"now": self.now, "planned": [list(tick) for tick in sorted(self._planned)]}

    def restore(self, state: dict[str, Any]) -> None:
        """Go back to a state; a sorted list is a heap."""
        self.now = state["now"]
        self._planned = [Tick(t, TickKind(kind), site, n) for t, kind, site, n in state["planned"]]


class WallClock(Clock):
    """Real time for deployment: arrivals as they come.

    Replies of one poll count as one instant. The time between polls grows from ``shortest_poll`` to
    ``longest_poll`` seconds while nothing arrives.
    """

    virtual = False

    def __init__(self, shortest_poll: float = 0.01, longest_poll: float = 1.0) -> None:
        if not 0 < shortest_poll <= longest_poll:
            raise SettingError(
                f"polls are {shortest_poll} to {longest_poll} seconds apart; give two numbers above 0, the "
                "shorter one first"
            )
        self.shortest_poll = shortest_poll
        self.longest_poll = longest_poll
        self.reset()

    def reset(self, now: float = 0.0) -> None:
        """Forget everything planned and begin at a time."""
        self.now = now
        self._start = time.monotonic() - now
        self._ready: list[Tick] = []
        self._pauses: list[Tick] = []

    def read(self) -> None:
        """Read the computer's clock."""
        self.now = time.monotonic() - self._start

    def available_at(self, site: str, attempt: int) -> float:
        """Return now: whether a real client is there shows when it answers."""
        return self.now

    def begin(self, job: Job) -> None:
        """Plan nothing: the reply shows when the job ends."""

    def wake(self, tick: Tick) -> None:
        """Plan the end of a client's pause."""
        heapq.heappush(self._pauses, tick)

    def pending(self) -> bool:
        """Tell whether a client pauses."""
        return bool(self._pauses or self._ready)

    def more_now(self) -> bool:
        """Tell whether ticks of the last poll are left."""
        return bool(self._ready)

    def next(
        self, mailbox: Mailbox, jobs: Mapping[int, Job], patience: float
    ) -> tuple[Tick, Message | None] | None:
        """Poll until something happens, for about ``longest_poll`` seconds."""
        sleep = self.shortest_poll
        while not self._ready:
            self._poll(mailbox, jobs)
            if not self._ready:
                if sleep > self.longest_poll:
                    return None
                time.sleep(sleep)
                sleep *= 2
        tick = heapq.heappop(self._ready)
        if tick.kind is TickKind.WAKE:
            return tick, None
        message_id = jobs[tick.sequence].message_id
        reply = mailbox.take(message_id) if tick.kind is TickKind.ARRIVAL else None
        mailbox.forget(message_id)
        return tick, reply

    def _poll(self, mailbox: Mailbox, jobs: Mapping[int, Job]) -> None:
        mailbox.poll()
        self.read()
        for job in jobs.values():
            if mailbox.has(job.message_id):
                self._ready.append(Tick(self.now, TickKind.ARRIVAL, job.site, job.sequence))
            elif self.now >= job.deadline:
                self._ready.append(Tick(self.now, TickKind.TIMEOUT, job.site, job.sequence))
        while self._pauses and self._pauses[0].time <= self.now:
            pause = heapq.heappop(self._pauses)
            self._ready.append(pause._replace(time=self.now))
        heapq.heapify(self._ready)

    def state(self) -> dict[str, Any]:
        """Return the time; what was in flight is lost at a restart, pauses are over."""
        return {"now": self.now}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on at the time of a state."""
        self.reset(state["now"])
