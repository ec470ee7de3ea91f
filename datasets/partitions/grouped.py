"""Groups: images of the same thing, such as one skin lesion, that are dealt as a whole.

An image of which no group is known is a group of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from datasets.errors import PartitionError
from datasets.partitions.shares import equal_sizes
from datasets.randomness import generator


@dataclass(frozen=True, eq=False)
class Groups:
    """The G groups that images are in.

    Attributes
    ----------
    ids
        The images, ascending, (N,).
    group
        The place of each image's group, in 0..G-1, (N,).
    sizes
        Images of each group, at least 1, (G,).
    labels
        The label that most images of a group have, the lower one in a tie, (G,).
    """

    ids: npt.NDArray[np.int64]
    group: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]

    @classmethod
    def of(
        cls,
        labels: npt.NDArray[np.int64],
        ids: npt.NDArray[np.int64],
        num_classes: int,
        numbers: npt.NDArray[np.int64] | None,
    ) -> "Groups":
        """Return the groups of the images ``ids``.

        Parameters
        ----------
        labels, numbers
            Label and group number of the whole split, (N,); ``None``: every image is a group of its own.
        """
        ids = np.sort(ids)
        if numbers is None:
            return cls(ids, np.arange(len(ids)), np.ones(len(ids), dtype=np.int64), labels[ids])
        found, group = np.unique(numbers[ids], return_inverse=True)
        counts = np.zeros((len(found), num_classes), dtype=np.int64)
        np.add.at(counts, (group, labels[ids]), 1)
        return cls(ids, group, counts.sum(axis=1), counts.argmax(axis=1))

    def __len__(self) -> int:
        """Return the number of groups."""
        return len(self.sizes)

    def class_counts(self, num_classes: int) -> npt.NDArray[np.int64]:
        """Return the images in the groups of each label, (C,)."""
        counts = np.zeros(num_classes, dtype=np.int64)
        np.add.at(counts, self.labels, self.sizes)
        return counts

    def pools(
        self, owners: npt.NDArray[np.int64], clients: int, seed: int
    ) -> tuple[npt.NDArray[np.int64], ...]:
        """Return each client's image ids in pool order, given the client of each group, (G,)."""
        owner = owners[self.group]
        return tuple(
            generator(seed, "pool order", "training", client).permutation(self.ids[owner == client])
            for client in range(clients)
        )


def deal_by_matrix(
    groups: Groups, matrix: npt.NDArray[np.int64], seed: int, rare_labels: Sequence[int] = ()
) -> npt.NDArray[np.int64]:
    """Return the client of each group, (G,), such that class counts come near ``matrix``, int64 (K, C).

    Class after class, the largest group goes first, each to the client that lacks most. Then groups move to
    the smallest clients until every client has one, and the sizes of those that could still give one differ
    from the smallest by the largest group at most. Groups of ``rare_labels`` do not move.

    Raises
    ------
    PartitionError
        If a client stays empty because of the groups that do not move.
    """
    owners = np.zeros(len(groups), dtype=np.int64)
    surplus = -matrix.astype(np.int64)
    for label in range(matrix.shape[1]):
        members = np.flatnonzero(groups.labels == label)
        shuffled = generator(seed, "partition groups", label).permutation(members)
        for place in shuffled[np.argsort(-groups.sizes[shuffled], kind="stable")]:
            owners[place] = surplus[:, label].argmin()
            surplus[owners[place], label] += groups.sizes[place]
    _even_out(groups, owners, surplus, matrix.sum(axis=1), ~np.isin(groups.labels, list(rare_labels)))
    return owners


def deal_evenly(groups: Groups, clients: int, seed: int) -> npt.NDArray[np.int64]:
    """Return the client of each group, (G,), at random; sizes differ by the largest group at most."""
    alike = Groups(groups.ids, groups.group, groups.sizes, np.zeros(len(groups), dtype=np.int64))
    return deal_by_matrix(alike, equal_sizes(int(groups.sizes.sum()), clients)[:, None], seed)


def _even_out(
    groups: Groups,
    owners: npt.NDArray[np.int64],
    surplus: npt.NDArray[np.int64],
    targets: npt.NDArray[np.int64],
    movable: npt.NDArray[np.bool_],
) -> None:
    """Move groups, changing ``owners`` and ``surplus`` in place; the class that is most in excess goes first.

    Every move lowers the number of empty clients or the sum of squared sizes, so it ends.
    """
    clients = len(targets)
    largest = int(groups.sizes[movable].max(initial=0))
    while True:
        sizes = targets + surplus.sum(axis=1)
        receiver = int(sizes.argmin())
        can_give = np.bincount(owners[movable], minlength=clients) > 0
        if sizes[receiver] == 0:
            can_give &= np.bincount(owners, minlength=clients) > 1
            if not can_give.any():
                raise PartitionError(
                    f"{int((sizes == 0).sum())} of {clients} clients would hold no training image: there are "
                    "too few groups of images with common labels. Set data.clients lower or keep more images "
                    "(data.imbalance, data.long-tail)."
                )
        if not can_give.any():
            return
        donor = int(np.where(can_give, sizes, -1).argmax())
        if sizes[receiver] > 0 and sizes[donor] - sizes[receiver] <= largest:
            return
        offered = np.flatnonzero(movable & (owners == donor))
        excess = (surplus[donor] - surplus[receiver])[groups.labels[offered]]
        place = offered[np.lexsort((groups.sizes[offered], -excess))[0]]
        owners[place] = receiver
        surplus[donor, groups.labels[place]] -= groups.sizes[place]
        surplus[receiver, groups.labels[place]] += groups.sizes[place]
