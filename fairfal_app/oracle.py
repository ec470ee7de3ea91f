"""Who labels the images that a query chose."""

import numpy as np

from federation.errors import RareflError


class OracleError(RareflError):
    """An oracle was asked for labels that it may not give."""


class SimulatedOracle:
    """Answers from the data set's own labels, at once, and only for ids that were asked for.

    ``labels`` are those of the whole data set, indexed by id; they stay in here, so that nothing else at
    the client reads the label of an image that no query chose. ``client`` is named in errors.
    """

    def __init__(self, labels: np.ndarray, client: str = "this client") -> None:
        self._labels = labels
        self._client = client
        self._asked: set[int] = set()

    def ask(self, label_round: int, ids: np.ndarray) -> None:
        """Register ids; raises OracleError on an id that the data set does not have."""
        wanted = np.asarray(ids, dtype=np.int64)
        unknown = wanted[(wanted < 0) | (wanted >= len(self._labels))]
        if len(unknown):
            raise OracleError(
                f"{self._client}: label round {label_round} asks for ids {_some(unknown)}; the data set has "
                f"ids 0 to {len(self._labels) - 1}"
            )
        self._asked.update(wanted.tolist())

    def collect(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return all of ``ids`` and their labels; raises OracleError on ids that were never asked for."""
        wanted = np.asarray(ids, dtype=np.int64)
        refused = [i for i in wanted.tolist() if i not in self._asked]
        if refused:
            raise OracleError(
                f"{self._client}: ids {_some(refused)} were never queried, so their labels stay hidden; "
                "ask for them in a query first"
            )
        return wanted, self._labels[wanted].astype(np.int64)


def _some(ids: np.ndarray | list[int]) -> str:
    """Return the first few ids as text, and how many more there are."""
    listed, shown = [int(i) for i in ids], 5
    more = f" and {len(listed) - shown} more" if len(listed) > shown else ""
    return ", ".join(map(str, listed[:shown])) + more
