"""One update of every client, in memory up to a limit and in files beyond it."""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from fedraw.aggregation import Arrays

DEFAULT_LIMIT = 4 * 2**30


class DeltaCache:
    """The latest arrays of each site.

    Parameters
    ----------
    memory_limit : int
        Bytes to keep in memory; arrays of further sites go to a temporary folder, which is removed with the
        cache, and are read from there as memory maps.
    """

    def __init__(self, memory_limit: int = DEFAULT_LIMIT) -> None:
        self.memory_limit = memory_limit
        self._memory: dict[str, Arrays] = {}
        self._files: dict[str, dict[str, Path]] = {}
        self._bytes = 0
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __contains__(self, site: str) -> bool:
        return site in self._memory or site in self._files

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._memory.keys() | self._files.keys()))

    def __len__(self) -> int:
        return len(self._memory) + len(self._files)

    def __getitem__(self, site: str) -> Arrays:
        if site in self._memory:
            return self._memory[site]
        return {key: np.load(path, mmap_mode="r") for key, path in self._files[site].items()}

    def __setitem__(self, site: str, arrays: Arrays) -> None:
        size = sum(array.nbytes for array in arrays.values())
        if site in self._memory:
            self._bytes -= sum(array.nbytes for array in self._memory.pop(site).values())
        if site not in self._files and self._bytes + size <= self.memory_limit:
            self._memory[site] = arrays
            self._bytes += size
            return
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="fedraw-cache-")
        number = list(self._files).index(site) if site in self._files else len(self._files)
        paths = {}
        for i, (key, array) in enumerate(arrays.items()):
            paths[key] = Path(self._folder.name) / f"{number}-{i}.npy"
            # A file that a memory map still shows is replaced, not overwritten.
            paths[key].unlink(missing_ok=True)
            np.save(paths[key], array, allow_pickle=False)
        self._files[site] = paths

    def pack(self) -> Arrays:
        """Return all arrays, named by the position of their site and their key."""
        return {f"{i}/{key}": array for i, site in enumerate(self) for key, array in self[site].items()}

    def unpack(self, arrays: Arrays, sites: Sequence[str]) -> None:
        """Take arrays of ``pack`` back for the sites of that cache."""
        for i, site in enumerate(sites):
            prefix = f"{i}/"
            self[site] = {
                name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)
            }
