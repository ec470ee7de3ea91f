"""Test splits for data sets that publish none."""

import numpy as np
import numpy.typing as npt

from datasets.randomness import generator

TEST_SHARE = 0.2

Ints = npt.NDArray[np.int64]


def draw_test_split(
    labels: Ints, source: str, seed: int, sites: Ints | None = None, groups: Ints | None = None
) -> tuple[Ints, Ints]:
    """Return the positions of training and test images, each ascending, int64.

    Of every class, 20 % of the groups become test images: one at least where there are two, none where there
    is one. Groups of a class are ordered by site and size and taken at equal steps from a drawn start, so
    that each site, and small and large groups, give their part.

    Parameters
    ----------
    labels
        Label of each image, (N,).
    source
        Name of the data set: each has its own draw.
    sites
        Site of each image, (N,).
    groups
        Images of the same number are never parted, (N,). A group counts for the label and the site of its
        first image. None: each image is a group of its own.
    """
    if groups is None:
        groups = np.arange(len(labels))
    _, first, group_of, sizes = np.unique(groups, return_index=True, return_inverse=True, return_counts=True)
    group_labels = labels[first]
    group_sites = np.zeros_like(first) if sites is None else sites[first]
    in_test = np.zeros(len(first), dtype=bool)
    for label in np.unique(group_labels):
        rng = generator(seed, "test split", source, int(label))
        members = rng.permutation(np.flatnonzero(group_labels == label))
        members = members[np.lexsort((sizes[members], group_sites[members]))]
        total = len(members)
        count = max(int(TEST_SHARE * total + 0.5), 1) if total > 1 else 0
        steps = (np.arange(count) + rng.random()) * total / max(count, 1)
        in_test[members[steps.astype(np.int64)]] = True
    of_test = in_test[group_of]
    return np.flatnonzero(~of_test), np.flatnonzero(of_test)
