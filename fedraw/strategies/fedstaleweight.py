"""FedStaleWeight: clients that are usually stale weigh more (arXiv 2406.02877)."""

from collections.abc import Sequence
from typing import Any, ClassVar, Unpack

import numpy as np

from fedraw.run.buffer import Entry
from fedraw.staleness import Constant, StalenessFunction
from fedraw.strategies.asynchronous import AsynchronousStrategy
from fedraw.strategies.settings import BufferedSettings


class FedStaleWeight(AsynchronousStrategy):
    """FedBuff with more weight for clients whose updates are usually stale.

    ``p_i`` is proportional to 1 + the mean staleness of client i's updates so far.

    Parameters
    ----------
    **settings
        See ``AsynchronousStrategy``; the staleness function is constant by default.
    """

    paper: ClassVar[str] = "arXiv 2406.02877"
    staleness: StalenessFunction = Constant()

    def __init__(self, **settings: Unpack[BufferedSettings]) -> None:
        super().__init__(**settings)
        self._staleness: dict[str, list[int]] = {}

    def begin(self) -> None:
        """Forget how stale clients were."""
        super().begin()
        self._staleness = {}

    def weights(self, entries: Sequence[Entry], taus: Sequence[int]) -> np.ndarray:
        """Take these updates into the means, and return q times 1 + mean staleness."""
        for entry, tau in zip(entries, taus, strict=True):
            total, count = self._staleness.get(entry.site, [0, 0])
            self._staleness[entry.site] = [total + tau, count + 1]
        means = [self._staleness[entry.site][0] / self._staleness[entry.site][1] for entry in entries]
        return self.base_weights(entries) * (1.0 + np.array(means))

    def own_state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return sum and count of each site's staleness."""
        return {}, {"staleness": {site: list(pair) for site, pair in self._staleness.items()}}

    def restore_own_state(self, arrays: dict[str, np.ndarray], state: dict[str, Any]) -> None:
        """Take the sums and counts back."""
        self._staleness = {site: list(pair) for site, pair in state["staleness"].items()}
