"""Greedy k-center over gradient embeddings."""

import numpy as np

from fairfal_app.query.errors import QueryInputError
from fairfal_app.query.gradient import GradientEmbeddings, squared_distances

# Rows and columns of the block of distances to anchors that is held at once, 8 MiB of float64.
TILE = 1024


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
    for row in range(0, len(candidates), TILE):
        rows = slice(row, row + TILE)
        for column in range(0, len(anchors), TILE):
            block = squared_distances(candidates[rows], anchors[column : column + TILE])
            np.minimum(nearest[rows], block.min(axis=1), out=nearest[rows])
    return nearest


def _first_equal(candidates: GradientEmbeddings, anchors: GradientEmbeddings) -> np.ndarray:
    """Return for every candidate, then every anchor, the first row of all these that has equal factors.

    A matrix product may round equal rows differently, which would break ties by accident.
    """
    count, width = len(candidates), candidates.features.shape[1]
    rows = np.empty((count + len(anchors), width + candidates.residuals.shape[1]))
    for part, target in ((candidates, rows[:count]), (anchors, rows[count:])):
        # Adding 0 turns -0.0 into 0.0, which equals it but has other bytes.
        np.add(part.features, 0.0, out=target[:, :width])
        np.add(part.residuals, 0.0, out=target[:, width:])
    whole_rows = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1])))[:, 0]
    _, first, group = np.unique(whole_rows, return_index=True, return_inverse=True)
    return first[group]
