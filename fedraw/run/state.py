"""What a run is at one moment: everything that the rest of it depends on, and its log."""

import logging
from dataclasses import dataclass, field

from flwr.app import MetricRecord

from fedraw.clock import Clock, Job
from fedraw.run.buffer import Buffer
from fedraw.run.events import Event, EventSink, as_callback
from fedraw.run.influence import Influence
from fedraw.run.roster import Roster
from fedraw.run.versions import VersionStore

LOGGER = logging.getLogger("flwr.fedraw")


@dataclass
class RunState:
    """The state of an asynchronous run, which its loop alone changes.

    Attributes
    ----------
    clock, roster, versions, buffer
        Time, clients, models that somebody needs, and updates that wait.
    jobs
        Jobs in flight by their sequence.
    influence
        What became of every update.
    train_metrics, client_metrics, server_metrics
        By version: of its updates, of evaluations at clients, of the server's evaluation.
    sequence
        Ticks planned so far.
    draws
        Clients chosen for a job so far.
    """

    clock: Clock
    roster: Roster
    versions: VersionStore
    buffer: Buffer
    events: EventSink | None = None
    jobs: dict[int, Job] = field(default_factory=dict)
    influence: Influence = field(default_factory=Influence)
    train_metrics: dict[int, MetricRecord] = field(default_factory=dict)
    client_metrics: dict[int, MetricRecord] = field(default_factory=dict)
    server_metrics: dict[int, MetricRecord] = field(default_factory=dict)
    sequence: int = 0
    draws: int = 0

    def __post_init__(self) -> None:
        """Prepare the log."""
        self._emit = as_callback(self.events)
        self._warned: set[str] = set()

    def next_sequence(self) -> int:
        """Count one more tick that is planned."""
        self.sequence += 1
        return self.sequence

    def log(
        self,
        kind: str,
        site: str,
        job: int | None,
        version: int,
        staleness: int | None = None,
        weight: float | None = None,
        reason: str = "",
    ) -> None:
        """Put a record of the present time into the event log."""
        self._emit(Event(self.clock.now, kind, site, job, version, staleness, weight, reason))

    def warn(self, key: str, text: str) -> None:
        """Log a warning the first time that it is given."""
        if key not in self._warned:
            self._warned.add(key)
            LOGGER.warning(text)
