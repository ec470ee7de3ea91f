"""ACE and ACED: every arrival makes a step with the last update of every client (arXiv 2511.19066)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Unpack

import numpy as np

from fedraw import aggregation
from fedraw.aggregation import Arrays
from fedraw.delta_cache import DEFAULT_LIMIT, DeltaCache
from fedraw.errors import SettingError
from fedraw.options import AsynchronousOptions
from fedraw.run.buffer import Buffer, Entry, Keep
from fedraw.run.roster import Roster
from fedraw.staleness import Constant, StalenessFunction
from fedraw.strategies.asynchronous import AsynchronousStrategy
from fedraw.strategies.settings import AsynchronousSettings


@dataclass(frozen=True)
class ACEOptions(AsynchronousOptions):
    """Options of ACE and ACED."""

    def default_server_lr(self, clients: int) -> float:
        """Return 1 / clients: an update takes part in about as many steps, which are one step together."""
        return 1 / clients


class ACE(AsynchronousStrategy):
    """Makes a step with the last update of every client at each arrival.

    An arrival takes the place of that client's last update U_j; then ``w <- w + server_lr mean_j U_j``. Every
    client counts the same in every step, however often it arrives. The first step waits for one update
    of every client that can be expected to send one.

    An update takes part in as many steps as there are arrivals until the client's next one. With several
    local steps of SGD in each update, a ``server_lr`` near 1 / clients keeps that stable, and 1 may diverge.

    Parameters
    ----------
    memory_limit : int
        Bytes of last updates to keep in memory; those beyond it go to disk.
    **settings
        See ``AsynchronousStrategy``; there is no buffer size, and the staleness function is constant.
    """

    paper: ClassVar[str] = "arXiv 2511.19066"
    Options: ClassVar[type[AsynchronousOptions]] = ACEOptions
    buffered: ClassVar[bool] = False
    buffer_size: int = 1
    keep: Keep = "newest"
    staleness: StalenessFunction = Constant()

    def __init__(
        self, *, memory_limit: int = DEFAULT_LIMIT, **settings: Unpack[AsynchronousSettings]
    ) -> None:
        super().__init__(**settings)
        self.memory_limit = memory_limit
        self._cache = DeltaCache(memory_limit)
        self._versions: dict[str, int] = {}

    def begin(self) -> None:
        """Forget all updates."""
        super().begin()
        self._cache = DeltaCache(self.memory_limit)
        self._versions = {}

    def is_ready(self, buffer: Buffer, roster: Roster) -> bool:
        """Tell whether there is an update, and one of every client that can be expected to send one."""
        if not len(buffer):
            return False
        return bool(self._versions) or roster.reachable() <= buffer.sites

    def active(self) -> list[str]:
        """Return the sites whose last updates take part in a step."""
        return sorted(self._versions)

    def coefficients(self, entries: Sequence[Entry], taus: Sequence[int]) -> np.ndarray:
        """Take the updates as the last ones of their clients; each has the share of one active client."""
        self._versions.update({entry.site: entry.version for entry in entries})
        return np.full(len(entries), 1.0 / len(self.active()))

    def update(self, arrays: Arrays, entries: Sequence[Entry], factors: np.ndarray) -> Arrays:
        """Apply the mean of the last updates; buffers take the mean of the last values."""
        for entry in entries:
            self._cache[entry.site] = entry.deltas | entry.values
        last = [self._cache[site] for site in self.active()]
        shares = np.full(len(last), 1.0 / len(last))
        step = {
            key: aggregation.weighted_sum(shares, [update[key] for update in last])
            for key in entries[0].deltas
        }
        stand_ins = [
            Entry("", 0, 0, 0, values={key: update[key] for key in entries[0].values}) for update in last
        ]
        return self.apply(arrays, step, stand_ins, shares)

    def contributions(self, entries: Sequence[Entry], factors: np.ndarray) -> dict[str, float]:
        """Return the same weight for each client whose last update took part."""
        active = self.active()
        return dict.fromkeys(active, 1.0 / len(active))

    def own_state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return all last updates and the versions they were trained on."""
        return self._cache.pack(), {"sites": list(self._cache), "versions": self._versions}

    def restore_own_state(self, arrays: dict[str, np.ndarray], state: dict[str, Any]) -> None:
        """Take all last updates back."""
        self._cache.unpack(arrays, state["sites"])
        self._versions = dict(state["versions"])


class ACED(ACE):
    """ACE with the updates only that are not too old.

    Parameters
    ----------
    memory_limit : int
        See ``ACE``.
    **settings
        See ``ACE``; ``max_staleness`` (10) is the most versions published since an update's client was sent
        what it trained on.
    """

    max_staleness: int | None = 10

    def __init__(
        self, *, memory_limit: int = DEFAULT_LIMIT, **settings: Unpack[AsynchronousSettings]
    ) -> None:
        if settings.get("max_staleness", 0) is None:
            raise SettingError("max_staleness is None; ACED needs a number of versions, ACE has no limit")
        super().__init__(memory_limit=memory_limit, **settings)

    def active(self) -> list[str]:
        """Return the sites whose last updates are not too old."""
        assert self.max_staleness is not None
        oldest = self.version - self.max_staleness
        return sorted(site for site, version in self._versions.items() if version >= oldest)
