"""Who shaped the model: what became of every update, and how much the clients with rare labels counted.

Two biases make rare labels lose in an asynchronous run (FedRAW, arXiv 2609.07192). Participation bias: slow
clients arrive less often. Aggregation bias: nothing in the buffer makes up for it.
"""

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class FlushRecord:
    """One flush.

    Attributes
    ----------
    version
        Version that it made.
    time
        Time on the run's clock.
    size
        Updates that were aggregated.
    replaced
        Updates of clients already in the buffer since the flush before.
    mean_staleness
        Mean tau of the updates.
    rare_updates, rare_weight
        Share of the rare group in the updates and in their weight; nan without a rare group.
    seconds
        Real seconds of the aggregation alone.
    """

    version: int
    time: float
    size: int
    replaced: int
    mean_staleness: float
    rare_updates: float
    rare_weight: float
    seconds: float


class Influence:
    """Counts of a whole run: every update received is aggregated, replaced, dropped, or left in the buffer.

    Attributes
    ----------
    received
        Updates that came in whole.
    replaced, participations, weights
        By site: updates that lost their place, updates that were aggregated, summed weight.
    dropped, failed
        By reason: updates not taken, jobs failed.
    staleness
        Aggregated updates by tau.
    abandoned
        Jobs in flight that a restart on a wall clock lost.
    seconds
        Real seconds of all flushes.
    """

    def __init__(self) -> None:
        self.received = 0
        self.replaced: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.participations: Counter[str] = Counter()
        self.weights: dict[str, float] = {}
        self.staleness: Counter[int] = Counter()
        self.abandoned = 0
        self.seconds = 0.0
        self.flushes: list[FlushRecord] = []
        self._replaced_before = 0

    def flush(
        self,
        version: int,
        time: float,
        sites: Sequence[str],
        taus: Sequence[int],
        weights: dict[str, float],
        rare: Collection[str],
        seconds: float,
    ) -> None:
        """Record a flush: site and staleness of its updates, and the weight of each site in the step."""
        self.participations.update(sites)
        self.staleness.update(taus)
        for site, weight in weights.items():
            self.weights[site] = self.weights.get(site, 0.0) + weight
        replaced = self.replaced.total()
        self.flushes.append(
            FlushRecord(
                version=version,
                time=time,
                size=len(sites),
                replaced=replaced - self._replaced_before,
                mean_staleness=sum(taus) / len(taus),
                rare_updates=_share({site: 1.0 * count for site, count in Counter(sites).items()}, rare),
                rare_weight=_share(weights, rare),
                seconds=seconds,
            )
        )
        self._replaced_before = replaced
        self.seconds += seconds

    def summary(
        self, clients: Collection[str], rare: Collection[str], left_over: int, in_flight: int
    ) -> dict[str, Any]:
        """Return the counts of the run and the biases against the rare group, as JSON.

        ``left_over`` updates are in the buffer and ``in_flight`` jobs are abandoned.

        ``participation_bias`` is the rare group's share of the aggregated updates over its share of the
        clients; ``aggregation_bias`` its share of the weight over its share of the updates. 1 is even, less
        than 1 means that rare labels lose. None where it is not defined.
        """
        of_clients = _share(dict.fromkeys(clients, 1.0), rare)
        of_updates = _share({site: 1.0 * count for site, count in self.participations.items()}, rare)
        of_weight = _share(self.weights, rare)
        flushes = len(self.flushes)
        return {
            "received": self.received,
            "aggregated": self.participations.total(),
            "replaced": self.replaced.total(),
            "dropped": dict(sorted(self.dropped.items())),
            "failed": dict(sorted(self.failed.items())),
            "left_over": left_over,
            "abandoned_jobs": self.abandoned + in_flight,
            "flushes": flushes,
            "replaced_per_flush": self.replaced.total() / flushes if flushes else 0.0,
            "seconds_per_flush": self.seconds / flushes if flushes else 0.0,
            "staleness": {str(tau): count for tau, count in sorted(self.staleness.items())},
            "participations": {site: self.participations[site] for site in sorted(clients)},
            "weights": {site: self.weights.get(site, 0.0) for site in sorted(clients)},
            "rare_clients": sorted(rare),
            "rare_share_of_clients": _or_none(of_clients),
            "rare_share_of_updates": _or_none(of_updates),
            "rare_share_of_weight": _or_none(of_weight),
            "participation_bias": _ratio(of_updates, of_clients),
            "aggregation_bias": _ratio(of_weight, of_updates),
        }

    def state(self) -> dict[str, Any]:
        """Return all counts as JSON."""
        return {
            "received": self.received,
            "abandoned": self.abandoned,
            "replaced": dict(self.replaced),
            "dropped": dict(self.dropped),
            "failed": dict(self.failed),
            "participations": dict(self.participations),
            "weights": dict(self.weights),
            "staleness": [[tau, count] for tau, count in sorted(self.staleness.items())],
            "seconds": self.seconds,
            "replaced_before": self._replaced_before,
            "flushes": [
                {key: _or_none(value) for key, value in asdict(record).items()} for record in self.flushes
            ],
        }

    @classmethod
    def restored(cls, state: dict[str, Any]) -> "Influence":
        """Return the counts of a state."""
        result = cls()
        result.received, result.abandoned = state["received"], state["abandoned"]
        for name in ("replaced", "dropped", "failed", "participations"):
            setattr(result, name, Counter(state[name]))
        result.weights = dict(state["weights"])
        result.staleness = Counter(dict(state["staleness"]))
        result.seconds = state["seconds"]
        result._replaced_before = state["replaced_before"]
        for record in state["flushes"]:
            whole: dict[str, Any] = {key: math.nan if v is None else v for key, v in record.items()}
            result.flushes.append(FlushRecord(**whole))
        return result


def _share(amounts: dict[str, float], group: Collection[str]) -> float:
    """Return a group's share of the amounts; nan without a group or amounts."""
    total = sum(amounts.values())
    if not group or total <= 0:
        return math.nan
    return sum(amount for site, amount in amounts.items() if site in group) / total


def _ratio(share: float, of: float) -> float | None:
    return share / of if of > 0 and not math.isnan(share) else None


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value
