"""CA2FL: cached update calibration (Wang et al., "Tackling the Data Heterogeneity in Asynchronous Federated
Learning with Cached Update Calibration", ICLR 2024)."""

from collections.abc import Sequence
from typing import Any, ClassVar, Unpack

import numpy as np

from fedraw import aggregation
from fedraw.aggregation import Arrays
from fedraw.delta_cache import DEFAULT_LIMIT, DeltaCache
from fedraw.run.buffer import Entry
from fedraw.staleness import Constant, StalenessFunction
from fedraw.strategies.asynchronous import AsynchronousStrategy
from fedraw.strategies.settings import BufferedSettings


class CA2FL(AsynchronousStrategy):
    """FedBuff, in which the last update of each absent client stands for it.

    ``w <- w + server_lr (H + sum_i p_i (D_i - h_i))``, then ``h_i <- D_i``. h_i is the last update of client
    i and H the mean of them over all known clients, one that never sent an
    update counting as 0: clients that are not in the buffer are stood for by their last update.

    Parameters
    ----------
    memory_limit : int
        Bytes of last updates to keep in memory; those beyond it go to disk.
    **settings
        See ``AsynchronousStrategy``; the staleness function is constant by default.
    """

    paper: ClassVar[str] = "Wang et al., ICLR 2024"
    staleness: StalenessFunction = Constant()

    def __init__(self, *, memory_limit: int = DEFAULT_LIMIT, **settings: Unpack[BufferedSettings]) -> None:
        super().__init__(**settings)
        self.memory_limit = memory_limit
        self._cache = DeltaCache(memory_limit)

    def begin(self) -> None:
        """Forget all updates."""
        super().begin()
        self._cache = DeltaCache(self.memory_limit)

    def update(self, arrays: Arrays, entries: Sequence[Entry], factors: np.ndarray) -> Arrays:
        """Apply the calibrated step and keep the updates."""
        cached = {site: self._cache[site] for site in self._cache}
        shares = dict.fromkeys(cached, 1.0 / self.number_of_clients)
        for entry, factor in zip(entries, factors, strict=True):
            if entry.site in shares:
                shares[entry.site] -= float(factor)
        multipliers = [*factors.tolist(), *shares.values()]
        step = {
            key: aggregation.weighted_sum(
                multipliers, [*(entry.deltas[key] for entry in entries), *(h[key] for h in cached.values())]
            )
            for key in entries[0].deltas
        }
        new = self.apply(arrays, step, entries, factors)
        for entry in entries:
            self._cache[entry.site] = entry.deltas
        return new

    def own_state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return all last updates."""
        return self._cache.pack(), {"sites": list(self._cache)}

    def restore_own_state(self, arrays: dict[str, np.ndarray], state: dict[str, Any]) -> None:
        """Take all last updates back."""
        self._cache.unpack(arrays, state["sites"])
