"""Shares: how many images of each class each client is meant to hold.

The Dirichlet draw and the equal sizes are FairFAL's (arXiv 2603.10341), rare holders FedRAW's scenario
(arXiv 2609.07192).
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_NORMALISATIONS = 5
_TINY = 1e-12


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
        more = equal_sizes(total + int(held[filled].sum()), int(filled.sum())) - held[filled]
        if (more >= 0).all():
            break
        filled[np.flatnonzero(filled)[more < 0]] = False
    result = np.zeros(len(held), dtype=np.int64)
    result[filled] = more
    return result


def equal_sizes(total: int, clients: int) -> npt.NDArray[np.int64]:
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
