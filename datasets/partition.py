"""Partitions: which images each client holds.

The Dirichlet partition is FairFAL's (arXiv 2603.10341): label shares differ among clients, sizes do not. Rare
holders are FedRAW's scenario (arXiv 2609.07192): some labels lie at few clients only.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from datasets.errors import PartitionError
from datasets.randomness import generator

PARTITIONS = ("dirichlet", "iid", "rare-holders")

_NORMALISATIONS = 5
_TINY = 1e-12


@dataclass(frozen=True, eq=False)
class Partition:
    """Images dealt to K clients.

    ``matrix`` counts the images of class j at client i, int64 (K, C). ``pools`` holds each client's image ids
    in pool order: a seeded permutation, because ties are broken by position and must not follow the class.
    """

    matrix: npt.NDArray[np.int64]
    pools: tuple[npt.NDArray[np.int64], ...]

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
) -> Partition:
    """Deal the training images ``ids`` to ``clients`` clients whose sizes differ by one image at most.

    Parameters
    ----------
    labels
        Labels of the whole training split, (N,); ``ids`` points into it.
    name
        "dirichlet": each client's labels by a Dirichlet draw of concentration ``alpha``; "iid": at random;
        "rare-holders": ``rare_labels`` in equal parts at ``rare_holders`` clients, drawn by the seed, and the
        other labels by a Dirichlet draw. A client whose rare images alone are more than an equal share keeps
        them; the others are filled up to equal sizes.

    Raises
    ------
    PartitionError
        If the name is unknown, alpha is not positive and finite, there are more clients than images, or rare
        labels or their holders are not among those there are.
    """
    if name not in PARTITIONS:
        raise PartitionError(f"partition is {name!r}; choose one of {', '.join(PARTITIONS)}.")
    _require_enough(clients, len(ids), "training")
    if name == "iid":
        return _partition_iid(labels, ids, num_classes, clients, seed)
    if not 0 < alpha < math.inf:
        raise PartitionError(
            f"alpha is {alpha}; it must be a finite number above 0 "
            "(small: few labels per client, large: nearly iid)."
        )
    rng = generator(seed, "partition shares")
    if name == "dirichlet":
        return _partition_by_shares(
            labels, ids, dirichlet_shares(clients, num_classes, alpha, rng), seed, "training"
        )
    _require_rare_holders(rare_labels, rare_holders, num_classes, clients)
    shares = rare_holder_shares(clients, num_classes, alpha, rare_labels, rare_holders, rng)
    return _partition_by_shares(labels, ids, shares, seed, "training", rare_labels)


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
    _require_enough(len(shares), len(labels), "test")
    return _partition_by_shares(labels, np.arange(len(labels)), shares, seed, "test", rare_labels).pools


def dirichlet_shares(
    clients: int, num_classes: int, alpha: float, rng: np.random.Generator
) -> npt.NDArray[np.float64]:
    """Return the share of each class meant for each client, (K, C): K Dirichlet draws, normalised in turn.

    Rows, then columns are brought to sum 1, five times: afterwards every column with any mass sums to 1, rows
    only about to C / K.
    """
    shares = rng.dirichlet(np.full(num_classes, alpha), size=clients)
    for _ in range(_NORMALISATIONS):
        shares = shares / (shares.sum(axis=1, keepdims=True) + _TINY)
        shares = shares / (shares.sum(axis=0, keepdims=True) + _TINY)
    return shares


def rare_holder_shares(
    clients: int,
    num_classes: int,
    alpha: float,
    rare_labels: Sequence[int],
    rare_holders: int,
    rng: np.random.Generator,
) -> npt.NDArray[np.float64]:
    """Return the share of each class meant for each client, (K, C): rare ones at few, others Dirichlet."""
    common = [label for label in range(num_classes) if label not in rare_labels]
    shares = np.zeros((clients, num_classes))
    shares[:, common] = dirichlet_shares(clients, len(common), alpha, rng)
    holders = rng.choice(clients, size=rare_holders, replace=False)
    shares[np.ix_(holders, np.array(rare_labels))] = 1 / rare_holders
    return shares


def equal_size_matrix(
    counts: npt.NDArray[np.int64], shares: npt.NDArray[np.float64], rare_labels: Sequence[int] = ()
) -> npt.NDArray[np.int64]:
    """Return how many images of each class each client gets, int64 (K, C), with equal row sums.

    Each class is first dealt by the largest-remainder method; then clients above their target give images to
    those below it, within a class, so that class totals stay.

    Parameters
    ----------
    counts
        Number of images of each class, (C,).
    shares
        Wanted shares, not negative, (K, C). Columns are normalised; one without mass counts as uniform.
    rare_labels
        Classes that are dealt by their shares alone; images of the others make sizes as equal as they can.
    """
    matrix = np.stack(
        [_largest_remainder(n, column) for n, column in zip(counts, shares.T, strict=True)], axis=1
    )
    common = np.setdiff1d(np.arange(len(counts)), np.array(rare_labels, dtype=np.int64))
    movable = matrix[:, common]
    targets = _fill_up(matrix.sum(axis=1) - movable.sum(axis=1), int(movable.sum()))
    _repair(movable, targets)
    matrix[:, common] = movable
    assert (matrix >= 0).all()
    assert (matrix.sum(axis=0) == counts).all()
    assert (movable.sum(axis=1) == targets).all()
    return matrix


def _fill_up(held: npt.NDArray[np.int64], total: int) -> npt.NDArray[np.int64]:
    """Return how many of ``total`` images each client gets on top of what it holds, (K,).

    Sizes become as equal as they can: who holds more than the others will have gets nothing.
    """
    filled = np.ones(len(held), dtype=bool)
    while True:
        more = _equal_sizes(total + int(held[filled].sum()), int(filled.sum())) - held[filled]
        if (more >= 0).all():
            break
        filled[np.flatnonzero(filled)[more < 0]] = False
    result = np.zeros(len(held), dtype=np.int64)
    result[filled] = more
    return result


def _equal_sizes(total: int, clients: int) -> npt.NDArray[np.int64]:
    """Return sizes that sum to ``total``, (K,); the first clients take the remainder, one each."""
    return total // clients + (np.arange(clients) < total % clients).astype(np.int64)


def _largest_remainder(total: int, shares: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Round ``total`` times the normalised shares, (K,), to integers of that sum; ties to lower clients."""
    mass = shares.sum()
    real = total * (shares / mass if mass > 0 else np.full(len(shares), 1 / len(shares)))
    rounded = np.floor(real).astype(np.int64)
    by_fraction = np.argsort(rounded - real, kind="stable")
    rounded[by_fraction[: total - rounded.sum()]] += 1
    return rounded


def _repair(matrix: npt.NDArray[np.int64], targets: npt.NDArray[np.int64]) -> None:
    """Move images within classes, in place, until row sums equal the targets.

    One pass over the classes is enough: a class is left with unsatisfied receivers only when no donor has
    images of it, and a client above its target does own images.
    """
    deficit = targets - matrix.sum(axis=1)
    by_deficit = np.argsort(-deficit, kind="stable")
    receivers = by_deficit[deficit[by_deficit] > 0]
    by_surplus = np.argsort(deficit, kind="stable")
    donors = by_surplus[deficit[by_surplus] < 0]
    for column in matrix.T:
        for receiver in receivers[deficit[receivers] > 0]:
            can_give = np.minimum(column[donors], -deficit[donors])
            for donor in donors[np.argsort(-can_give, kind="stable")]:
                moved = min(column[donor], -deficit[donor], deficit[receiver])
                if moved == 0:
                    break
                column[donor] -= moved
                column[receiver] += moved
                deficit[donor] += moved
                deficit[receiver] -= moved


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
    matrix = np.stack([np.bincount(labels[pool], minlength=num_classes) for pool in pools])
    return _checked(Partition(matrix, pools), np.sort(ids))


def _checked(result: Partition, ids: npt.NDArray[np.int64]) -> Partition:
    """Return the partition after checking that its pools are disjoint and hold every id."""
    assert np.array_equal(np.sort(np.concatenate(result.pools)), ids)
    return result


def _require_enough(clients: int, images: int, split: str) -> None:
    if clients < 1:
        raise PartitionError(f"clients is {clients}; there must be at least one.")
    if images < clients:
        raise PartitionError(
            f"{images} {split} images cannot be dealt to {clients} clients: each needs at least one. "
            f"Set data.clients to {images} or less, or keep more images (data.imbalance, data.long-tail)."
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
