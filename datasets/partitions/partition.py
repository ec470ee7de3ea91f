"""Partitions: which images each client holds.

The Dirichlet partition is FairFAL's (arXiv 2603.10341): label shares differ among clients, sizes do not. Rare
holders are FedRAW's scenario (arXiv 2609.07192): some labels lie at few clients only. Shards are McMahan's
(arXiv 1602.05629).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from datasets.errors import PartitionError
from datasets.partitions.grouped import Groups, deal_by_matrix, deal_evenly
from datasets.partitions.shards import deal_shards
from datasets.partitions.shares import dirichlet_shares, equal_size_matrix, rare_holder_shares
from datasets.randomness import generator

DEALT = ("dirichlet", "iid", "rare-holders", "shards")
PARTITIONS = (*DEALT, "natural")

LEAST_ALPHA, MOST_ALPHA = 0.01, 1e6
"""Below, a client's draw is one label alone, and labels that no client drew would be dealt evenly; above, all
clients are alike."""


@dataclass(frozen=True, eq=False)
class Partition:
    """Images dealt to K clients.

    ``matrix`` counts the images of class j at client i, int64 (K, C). ``pools`` holds each client's image ids
    in pool order: a seeded permutation, because ties are broken by position and must not follow the class.
    """

    matrix: npt.NDArray[np.int64]
    pools: tuple[npt.NDArray[np.int64], ...]

    @classmethod
    def of(
        cls, pools: tuple[npt.NDArray[np.int64], ...], labels: npt.NDArray[np.int64], num_classes: int
    ) -> "Partition":
        """Return the partition into these pools; ``labels`` are those of the whole split, (N,)."""
        return cls(np.stack([np.bincount(labels[pool], minlength=num_classes) for pool in pools]), pools)

    @property
    def shares(self) -> npt.NDArray[np.float64]:
        """Return the realised share of each class that each client holds, (K, C)."""
        return self.matrix / np.maximum(self.matrix.sum(axis=0), 1)


def partition(
    labels: npt.NDArray[np.int64],
    ids: npt.NDArray[np.int64],
    num_classes: int,
    clients: int,
    name: str,
    alpha: float,
    seed: int,
    rare_labels: Sequence[int] = (),
    rare_holders: int = 0,
    *,
    shards_per_client: int = 2,
    group_numbers: npt.NDArray[np.int64] | None = None,
) -> Partition:
    """Deal the training images ``ids`` to ``clients`` clients.

    Parameters
    ----------
    labels
        Labels of the whole training split, (N,); ``ids`` points into it.
    name
        "dirichlet": each client's labels by a Dirichlet draw of concentration ``alpha``; "iid": at random;
        "rare-holders": ``rare_labels`` in equal parts at ``rare_holders`` clients, drawn by the seed, and the
        other labels by a Dirichlet draw. A client whose rare images alone are more than an equal share keeps
        them; the others are filled up to equal sizes. "shards": ``shards_per_client`` pieces of the images
        sorted by label. Sizes differ by one image at most, with shards by one for each shard.
    group_numbers
        Images of the whole training split with the same number stay at one client, (N,). A group counts as
        of the label that most of its images have. Sizes then differ by the largest group at most, not by
        one image; with shards each end of a shard moves by half a group at most.

    Raises
    ------
    PartitionError
        If the name is unknown, alpha is out of range, there are more clients or shards than images or
        groups, or rare labels or their holders are not among those there are.
    """
    if name not in DEALT:
        raise PartitionError(f"partition is {name!r}; choose one of {', '.join(PARTITIONS)}.")
    _require_enough(clients, len(ids), "training images")
    if group_numbers is not None:
        _require_enough(clients, len(np.unique(group_numbers[ids])), "groups of training images")
    shares = None
    if name in ("dirichlet", "rare-holders"):
        if name == "dirichlet":
            rare_labels = ()
        else:
            _require_rare_holders(rare_labels, rare_holders, num_classes, clients)
        shares = _wanted_shares(clients, num_classes, alpha, seed, rare_labels, rare_holders)
    if group_numbers is None and shares is not None:
        return _partition_by_shares(labels, ids, shares, seed, "training", rare_labels)
    if group_numbers is None and name == "iid":
        return _partition_iid(labels, ids, num_classes, clients, seed)
    groups = Groups.of(labels, ids, num_classes, group_numbers)
    if shares is not None:
        matrix = equal_size_matrix(groups.class_counts(num_classes), shares, rare_labels)
        owners = deal_by_matrix(groups, matrix, seed, rare_labels)
    elif name == "iid":
        owners = deal_evenly(groups, clients, seed)
    else:
        owners = deal_shards(groups, clients, shards_per_client, seed)
    return _checked(Partition.of(groups.pools(owners, clients, seed), labels, num_classes), groups.ids)


def partition_test(
    labels: npt.NDArray[np.int64],
    shares: npt.NDArray[np.float64],
    seed: int,
    rare_labels: Sequence[int] = (),
) -> tuple[npt.NDArray[np.int64], ...]:
    """Return per-client ids into the test split, dealt by the training partition's realised shares, (K, C).

    Sizes are equal again, which bends the label mix where the test split is balanced and the training
    data are not; ``rare_labels`` stay at their holders.
    """
    _require_enough(len(shares), len(labels), "test images")
    return _partition_by_shares(labels, np.arange(len(labels)), shares, seed, "test", rare_labels).pools


def _wanted_shares(
    clients: int,
    num_classes: int,
    alpha: float,
    seed: int,
    rare_labels: Sequence[int],
    rare_holders: int,
) -> npt.NDArray[np.float64]:
    if not LEAST_ALPHA <= alpha <= MOST_ALPHA:
        raise PartitionError(
            f"data.alpha is {alpha:g}; it must be {LEAST_ALPHA:g} (few labels per client) to {MOST_ALPHA:g} "
            "(all clients alike). For clients of one label take data.partition = 'shards' with "
            "data.shards-per-client = 1, for equal ones 'iid'."
        )
    rng = generator(seed, "partition shares")
    if not rare_labels:
        return dirichlet_shares(clients, num_classes, alpha, rng)
    return rare_holder_shares(clients, num_classes, alpha, rare_labels, rare_holders, rng)


def _partition_by_shares(
    labels: npt.NDArray[np.int64],
    ids: npt.NDArray[np.int64],
    shares: npt.NDArray[np.float64],
    seed: int,
    split: str,
    rare_labels: Sequence[int] = (),
) -> Partition:
    """Shuffle each class, cut it by the equal-size matrix, and bring each client's pieces into pool order."""
    clients, num_classes = shares.shape
    ids = np.sort(ids)
    matrix = equal_size_matrix(np.bincount(labels[ids], minlength=num_classes), shares, rare_labels)
    if rare_labels and not matrix.sum(axis=1).all():
        raise PartitionError(
            f"{int((matrix.sum(axis=1) == 0).sum())} of {clients} clients would hold no {split} image: there "
            "are too few images of common labels. Set data.clients lower or keep more images "
            "(data.imbalance, data.long-tail)."
        )
    assert not matrix[:, list(rare_labels)][shares[:, list(rare_labels)] == 0].any()
    pieces: list[list[npt.NDArray[np.int64]]] = [[] for _ in range(clients)]
    for label in range(num_classes):
        shuffled = generator(seed, "partition ids", split, label).permutation(ids[labels[ids] == label])
        cuts = np.cumsum(matrix[:, label])[:-1]
        for client, piece in enumerate(np.split(shuffled, cuts)):
            pieces[client].append(piece)
    pools = tuple(
        generator(seed, "pool order", split, client).permutation(np.concatenate(pieces[client]))
        for client in range(clients)
    )
    return _checked(Partition(matrix, pools), ids)


def _partition_iid(
    labels: npt.NDArray[np.int64], ids: npt.NDArray[np.int64], num_classes: int, clients: int, seed: int
) -> Partition:
    """Cut one random permutation of the images into equal pieces, which is a pool order already."""
    shuffled = generator(seed, "partition ids", "iid").permutation(np.sort(ids))
    pools = tuple(np.array_split(shuffled, clients))
    return _checked(Partition.of(pools, labels, num_classes), np.sort(ids))


def _checked(result: Partition, ids: npt.NDArray[np.int64]) -> Partition:
    """Return the partition after checking that its pools are disjoint and hold every id."""
    assert np.array_equal(np.sort(np.concatenate(result.pools)), ids)
    return result


def _require_enough(clients: int, number: int, what: str) -> None:
    if clients < 1:
        raise PartitionError(f"clients is {clients}; there must be at least one.")
    if number < clients:
        fewer = f"set data.clients to {number} or less" if number else ""
        more = "add some" if what == "test images" else "keep more images (data.imbalance, data.long-tail)"
        way_out = ", or ".join(filter(None, (fewer, more)))
        raise PartitionError(
            f"{number} {what} cannot be dealt to {clients} clients: each needs at least one; {way_out}."
        )


def _require_rare_holders(rare_labels: Sequence[int], holders: int, num_classes: int, clients: int) -> None:
    labels = set(rare_labels)
    if not labels or len(labels) < len(rare_labels) or not labels < set(range(num_classes)):
        raise PartitionError(
            f"rare labels are {', '.join(map(str, rare_labels)) or 'none'}; name some, not all, of labels "
            f'0 to {num_classes - 1}, each once (data.rare-labels, like "8,9").'
        )
    if not 1 <= holders <= clients:
        raise PartitionError(
            f"{holders} clients hold the rare labels; data.rare-holders is 1 to data.clients = {clients}."
        )
