"""The same image more than once: under two labels, in two splits, or simply repeated.

Images are the same if their decoded pixels are, at the size that a model sees: a copy in another file format
without loss, or with other metadata, is found as well.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

Ints = npt.NDArray[np.int64]


def content_numbers(digests: npt.NDArray[np.uint8]) -> Ints:
    """Return a number for each image, (N,), the same for equal digests, uint8 (N, B)."""
    if len(digests) == 0:
        return np.zeros(0, dtype=np.int64)
    _, numbers = np.unique(digests, axis=0, return_inverse=True)
    return numbers.reshape(-1).astype(np.int64)


def contradictions(content: Ints, labels: Ints) -> dict[int, int]:
    """Return the images that are there with another label as well: for each position that of such another.

    Parameters
    ----------
    content, labels
        Content number and label of each image, (N,).
    """
    found: dict[int, int] = {}
    for members in _repeated(content):
        if len(set(labels[members])) > 1:
            for image in members:
                found[int(image)] = int(members[labels[members] != labels[image]][0])
    return found


def in_both_splits(content: Ints, in_test: npt.NDArray[np.bool_]) -> dict[int, int]:
    """Return the training images that are in the test split as well: for each position that of the latter."""
    found: dict[int, int] = {}
    for members in _repeated(content):
        of_test = members[in_test[members]]
        if len(of_test):
            found |= {int(image): int(of_test[0]) for image in members[~in_test[members]]}
    return found


def kept_together(groups: Ints | None, content: Ints) -> Ints | None:
    """Return group numbers in which copies share a group, (N,).

    Groups that have a copy in common become one; without copies the groups stay as they are.
    """
    if not _repeated(content):
        return groups
    count = len(content)
    edges = [_first_of_equal(numbers) for numbers in (groups, content) if numbers is not None]
    rows, columns = np.tile(np.arange(count), len(edges)), np.concatenate(edges)
    graph = coo_matrix((np.ones(len(rows), dtype=bool), (rows, columns)), shape=(count, count))
    return np.asarray(connected_components(graph, directed=False)[1], dtype=np.int64)


def _first_of_equal(numbers: Ints) -> Ints:
    """Return for each position the first one with the same number."""
    _, first, inverse = np.unique(numbers, return_index=True, return_inverse=True)
    return first[inverse]


def _repeated(content: Ints) -> Sequence[Ints]:
    """Return the positions of each content that is there more than once, ascending."""
    by_content = np.argsort(content, kind="stable")
    runs = np.split(by_content, np.flatnonzero(np.diff(content[by_content])) + 1)
    return [run for run in runs if len(run) > 1]
