"""How well predicted probabilities fit labels, overall, per class, and for rare and common labels apart."""

import math
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

_SMALLEST_PROBABILITY = 1e-12


@dataclass(frozen=True)
class Measures:
    """Measures over N images; nan where there is nothing to measure.

    Attributes
    ----------
    loss
        Mean cross-entropy, probabilities at least 1e-12.
    balanced_accuracy
        Mean recall over the classes that the labels contain.
    macro_f1
        Mean F1 over the classes that the labels or the predictions contain.
    rare_accuracy, common_accuracy
        Share of correct predictions among the images with a rare label, and among the others.
    per_class
        Recall of each class, 0..C-1.
    """

    loss: float
    accuracy: float
    balanced_accuracy: float
    macro_f1: float
    rare_accuracy: float
    common_accuracy: float
    per_class: tuple[float, ...]


def measure(probabilities: np.ndarray, labels: np.ndarray, rare_labels: Collection[int]) -> Measures:
    """Return the measures of probabilities (N, C) against labels (N,) in 0..C-1; the largest one predicts.

    Raises
    ------
    ValueError
        If there is not one row of probabilities for each label.
    """
    if probabilities.ndim != 2 or labels.shape != probabilities.shape[:1]:
        raise ValueError(
            f"expected probabilities (N, C) and labels (N,), got {probabilities.shape} and {labels.shape}"
        )
    count, classes = probabilities.shape
    if count == 0:
        return Measures(*(math.nan,) * 6, per_class=(math.nan,) * classes)
    predicted = probabilities.argmax(axis=1)
    correct = predicted == labels
    hits, present, named = (
        np.bincount(some, minlength=classes) for some in (labels[correct], labels, predicted)
    )
    recalls = np.divide(hits, present, out=np.full(classes, np.nan), where=present > 0)
    seen = present + named > 0
    rare = np.isin(labels, list(rare_labels))
    of_label = probabilities[np.arange(count), labels]
    return Measures(
        loss=float(-np.log(of_label.clip(min=_SMALLEST_PROBABILITY)).mean()),
        accuracy=float(correct.mean()),
        balanced_accuracy=float(recalls[present > 0].mean()),
        macro_f1=float((2 * hits[seen] / (present + named)[seen]).mean()),
        rare_accuracy=_share(correct[rare]),
        common_accuracy=_share(correct[~rare]),
        per_class=tuple(recalls.tolist()),
    )


def _share(flags: np.ndarray) -> float:
    return float(flags.mean()) if flags.size else math.nan
