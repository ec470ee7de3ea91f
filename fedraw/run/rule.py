"""What a run needs of a strategy: how a buffer becomes an update. Everything else is settings."""

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid

from fedraw.aggregation import Arrays
from fedraw.run.buffer import Buffer, Entry
from fedraw.run.roster import Roster


class UpdateRule(Protocol):
    """The calls that a run makes to its strategy; ``AsynchronousStrategy`` says what each means."""

    def make_buffer(self) -> Buffer:
        """Return an empty buffer."""

    def received(self, entry: Entry, sent: Arrays) -> None:
        """Take note of an update that came in."""

    def is_ready(self, buffer: Buffer, roster: Roster) -> bool:
        """Tell whether the buffer makes a version now."""

    def coefficients(self, entries: Sequence[Entry], taus: Sequence[int]) -> np.ndarray:
        """Return what each update is multiplied with, (k,)."""

    def update(self, arrays: Arrays, entries: Sequence[Entry], factors: np.ndarray) -> Arrays:
        """Return the arrays of the next version."""

    def contributions(self, entries: Sequence[Entry], factors: np.ndarray) -> dict[str, float]:
        """Return the weight of each site in the step."""

    def rare_group(self) -> Collection[str]:
        """Return the sites whose influence is measured against that of all."""

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return one message for each client that evaluates a version."""

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Return the average of what they measured."""
