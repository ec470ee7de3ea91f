"""Pseudo-labels by cosine similarity to class prototypes (FairFAL, arXiv 2603.10341)."""

import numpy as np

_SMALLEST_NORM = 1e-12


def _unit(vectors: np.ndarray) -> np.ndarray:
    """Return rows of length 1 in double precision; a row of zeros stays as it is."""
    rows = vectors.astype(np.float64)
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), _SMALLEST_NORM)


def prototypes(features: np.ndarray, labels: np.ndarray, num_classes: int) -> np.ndarray:
    """Return one unit vector a class, (C, D): the renormalised mean of the class's normalised features
    (L, D).

    A class without labels has a row of zeros, and so has one whose features are all zero.
    """
    unit, means = _unit(features), np.zeros((num_classes, features.shape[1]))
    for label in np.unique(labels):
        means[label] = unit[labels == label].mean(axis=0)
    return _unit(means)


def pseudo_labels(
    pool_features: np.ndarray, labelled_features: np.ndarray, labels: np.ndarray, num_classes: int
) -> np.ndarray:
    """Return the class of the nearest prototype for every pool image, int64 (U,).

    Only classes with at least one label compete; ties go to the lowest class. Features are those of one
    model, (U, D) and (L, D).
    """
    similarity = _unit(pool_features) @ prototypes(labelled_features, labels, num_classes).T
    absent = np.setdiff1d(np.arange(num_classes), labels)
    similarity[:, absent] = -np.inf
    return similarity.argmax(axis=1)
