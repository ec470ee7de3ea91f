"""Greedy k-center over gradient embeddings."""

import numpy as np

from fairfal_app.query.errors import QueryInputError
from fairfal_app.query.gradient import GradientEmbeddings, squared_distances

# Distances between candidates and anchors held at once, 32 MiB of float64.
BLOCK = 2**22


def k_center(candidates: GradientEmbeddings, anchors: GradientEmbeddings, quota: int) -> np.ndarray:
    """Return ``quota`` rows of ``candidates``, int64, in the order in which they are picked.

    Each pick is the candidate farthest from the anchors and the picks so far; ties go to the first
    candidate, no row is picked twice, and without anchors the first pick is row 0. With no more
    candidates than the quota all rows come back in their own order. Embeddings equal in both factors have
    distance 0 to the last bit and tie whatever the rounding of the products. Raises QueryInputError on a
    distance that is not a number.
    """
    count = len(candidates)
    if count <= quota:
        return np.arange(count)
    first = _first_equal(candidates, anchors)
    nearest = _nearest_anchor(candidates, anchors)
    nearest[first[count:][first[count:] < count]] = 0
    first = first[:count]
    nearest = nearest[first]
    picks = np.empty(quota, dtype=np.int64)
    for i in range(quota):
        pick = picks[i] = int(nearest.argmax())
        if np.isnan(nearest[pick]):
            raise QueryInputError(
                f"candidate {pick}: its distance is not a number; embeddings must be finite"
            )
        distance = squared_distances(candidates, candidates[pick : pick + 1])[:, 0][first]
        distance[first == first[pick]] = 0
        np.minimum(nearest, distance, out=nearest)
        nearest[pick] = -np.inf
    return picks


def _nearest_anchor(candidates: GradientEmbeddings, anchors: GradientEmbeddings) -> np.ndarray:
    """Return each candidate's squared distance to its nearest anchor; infinity without anchors."""
    nearest = np.full(len(candidates), np.inf)
    step = max(1, BLOCK // len(candidates))
    for start in range(0, len(anchors), step):
        block = squared_distances(candidates, anchors[start : start + step])
        np.minimum(nearest, block.min(axis=1), out=nearest)
    return nearest


def _first_equal(candidates: GradientEmbeddings, anchors: GradientEmbeddings) -> np.ndarray:
    """Return for every candidate, then every anchor, the first row of all these that has equal factors.

    A matrix product may round equal rows differently, which would break ties by accident.
    """
    factors = [np.hstack([part.features, part.residuals]) for part in (candidates, anchors)]
    rows = np.vstack(factors)
    rows += 0.0  # -0.0 and 0.0 are equal, but their bytes differ
    whole_rows = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1])))[:, 0]
    _, first, group = np.unique(whole_rows, return_index=True, return_inverse=True)
    return first[group]
