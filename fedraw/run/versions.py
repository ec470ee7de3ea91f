"""The versions of the model that somebody still needs."""

from collections import Counter

import numpy as np
from flwr.app import Array, ArrayRecord

from fedraw.aggregation import Arrays


class VersionStore:
    """Arrays of the present version and of each version with a job in flight; each is kept once.

    Attributes
    ----------
    current
        Number of updates published so far.
    """

    def __init__(self, arrays: Arrays, current: int = 0) -> None:
        self.current = current
        self._arrays = {current: arrays}
        self._records: dict[int, ArrayRecord] = {}
        self._users: Counter[int] = Counter()

    def __contains__(self, version: int) -> bool:
        return version in self._arrays

    def __len__(self) -> int:
        return len(self._arrays)

    def arrays(self, version: int) -> Arrays:
        """Return the arrays of a version; nobody changes them in place."""
        return self._arrays[version]

    def record(self, version: int) -> ArrayRecord:
        """Return the record that goes into messages, made once a version."""
        if version not in self._records:
            arrays = self._arrays[version]
            self._records[version] = ArrayRecord(
                {key: Array(np.asarray(value)) for key, value in arrays.items()}
            )
        return self._records[version]

    def acquire(self, version: int) -> None:
        """Keep a version for one more job."""
        self._users[version] += 1

    def release(self, version: int) -> None:
        """End one job's need of a version."""
        self._users[version] -= 1
        self._prune(version)

    def publish(self, arrays: Arrays) -> int:
        """Make these arrays the next version, and return its number."""
        previous = self.current
        self.current += 1
        self._arrays[self.current] = arrays
        self._prune(previous)
        return self.current

    def prune(self) -> None:
        """Drop every version that nobody needs."""
        for version in self.kept():
            self._prune(version)

    def _prune(self, version: int) -> None:
        if version != self.current and not self._users[version]:
            del self._users[version], self._arrays[version]
            self._records.pop(version, None)

    def kept(self) -> list[int]:
        """Return the versions that are kept, ascending."""
        return sorted(self._arrays)

    @classmethod
    def restored(cls, versions: dict[int, Arrays], current: int) -> "VersionStore":
        """Return a store with these versions and no job in flight yet."""
        store = cls(versions[current], current)
        store._arrays = dict(versions)
        return store
