"""Gradient embeddings that are never built: g(x) = residual (outer) features, kept as its two factors.

g is the gradient of the cross-entropy with respect to the last layer's weights, C x D numbers an image.
Squared distances follow from the factors: |a - b|^2 = |h_a|^2 |r_a|^2 + |h_b|^2 |r_b|^2 - 2 (h_a .
h_b)(r_a . r_b).
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class GradientEmbeddings:
    """N gradient embeddings, float64: features (N, D), residuals (N, C), squared norms (N,)."""

    features: np.ndarray
    residuals: np.ndarray
    squared_norms: np.ndarray

    @classmethod
    def of(cls, features: np.ndarray, residuals: np.ndarray) -> "GradientEmbeddings":
        """Return the embeddings of features and residuals, in double precision."""
        h, r = features.astype(np.float64), residuals.astype(np.float64)
        norms = np.einsum("nd,nd->n", h, h) * np.einsum("nc,nc->n", r, r)
        return cls(h, r, norms)

    def __len__(self) -> int:
        return len(self.squared_norms)

    def __getitem__(self, rows: slice) -> "GradientEmbeddings":
        return GradientEmbeddings(self.features[rows], self.residuals[rows], self.squared_norms[rows])


def residuals(probabilities: np.ndarray, labels: np.ndarray | None = None) -> np.ndarray:
    """Return e_label - p, float64 (N, C); the label is argmax p (ties: lowest class) where none is given."""
    hypothesis = probabilities.argmax(axis=1) if labels is None else labels
    residual = -probabilities.astype(np.float64)
    residual[np.arange(len(residual)), hypothesis] += 1
    return residual


def squared_distances(a: GradientEmbeddings, b: GradientEmbeddings) -> np.ndarray:
    """Return squared Euclidean distances between gradient embeddings, float64 (N_a, N_b), clipped at 0."""
    distances = a.features @ b.features.T
    distances *= a.residuals @ b.residuals.T
    distances *= -2
    distances += a.squared_norms[:, None]
    distances += b.squared_norms
    return np.maximum(distances, 0, out=distances)
