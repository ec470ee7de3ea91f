"""The buffer of updates that wait for the next version."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from fedraw.aggregation import Arrays, weighted_sum
from fedraw.arrays import restore_dtype

Keep = Literal["off", "newest", "freshest", "mean"]


@dataclass(slots=True)
class Entry:
    """One update in the buffer.

    Attributes
    ----------
    site, job
        Who it comes from, and which of that site's jobs.
    version
        Version it was trained on.
    sequence
        Order of dispatch in the run; breaks ties.
    deltas
        Change of each parameter against the arrays that were sent, float32 or wider.
    values
        Values of each buffer of the model (batch-norm statistics), which are not changes of a gradient.
    metrics
        Metrics of the reply.
    examples
        Examples it was trained on, None when the client did not say.
    merged
        Updates of the same site that are averaged in it.
    """

    site: str
    job: int
    version: int
    sequence: int
    deltas: Arrays = field(default_factory=dict)
    values: Arrays = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    examples: float | None = None
    merged: int = 1


def merge(old: Entry, new: Entry) -> Entry:
    """Return the running mean of a site's updates; staleness is that of the freshest."""
    count = old.merged + 1
    shares = [old.merged / count, 1 / count]
    deltas = {key: weighted_sum(shares, [old.deltas[key], new.deltas[key]]) for key in new.deltas}
    values = {}
    for key, value in new.values.items():
        if np.issubdtype(value.dtype, np.floating):
            values[key] = restore_dtype(weighted_sum(shares, [old.values[key], value]), value.dtype)
        else:
            values[key] = np.asarray(np.maximum(old.values[key], value))
    return replace(new, deltas=deltas, values=values, version=max(old.version, new.version), merged=count)


class Buffer:
    """Updates that wait, one place a client unless ``keep`` is ``off`` (FedRAW, arXiv 2609.07192).

    ``keep`` says what a second update of a client does to the first: ``newest`` takes its place, ``freshest``
    takes it unless it is staler, ``mean`` is averaged into it. It does not count as another entry.
    """

    def __init__(self, keep: Keep = "off") -> None:
        self.keep = keep
        self._entries: list[Entry] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries)

    @property
    def sites(self) -> set[str]:
        """Sites with an update in the buffer."""
        return {entry.site for entry in self._entries}

    def add(self, entry: Entry) -> Entry | None:
        """Put an update in; return the one that has no place of its own (any more), if there is one."""
        place = None
        if self.keep != "off":
            place = next((i for i, old in enumerate(self._entries) if old.site == entry.site), None)
        if place is None:
            self._entries.append(entry)
            return None
        old = self._entries[place]
        if self.keep == "freshest" and entry.version < old.version:
            return entry
        self._entries[place] = merge(old, entry) if self.keep == "mean" else entry
        return old

    def take(self) -> list[Entry]:
        """Empty the buffer, in the order of sites: sums do not depend on the order of arrival."""
        entries = sorted(self._entries, key=lambda entry: (entry.site, entry.sequence))
        self._entries = []
        return entries
