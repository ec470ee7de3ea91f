"""Long tails: which images of each class a training split keeps."""

import math

import numpy as np
import numpy.typing as npt

from datasets.errors import PartitionError
from datasets.randomness import generator

PROFILES = ("exponential", "step", "none")


def long_tail_counts(
    class_sizes: npt.NDArray[np.int64], profile: str, imbalance: float
) -> npt.NDArray[np.int64]:
    """Return how many images of each class are kept, (C,), never more than there are.

    With n the mean class size as a real number, q = 1 / imbalance and c = 0..C-1 in label order,
    "exponential" keeps floor(n q^(c / (C-1))) images of class c, "step" floor(n) of the first half of the
    classes and floor(n q) of the others, "none" all (profiles as in FairFAL, arXiv 2603.10341).

    Parameters
    ----------
    class_sizes
        Number of images of each class, (C,).
    imbalance
        Images of the most frequent class over images of the rarest, at least 1.

    Raises
    ------
    PartitionError
        If the profile is unknown, the imbalance below 1 or not finite, or a class would lose all its images.
    """
    if profile not in PROFILES:
        raise PartitionError(f"long-tail is {profile!r}; choose one of {', '.join(PROFILES)}.")
    if not 1 <= imbalance < math.inf:
        raise PartitionError(
            f"imbalance is {imbalance}; it must be a finite number of at least 1 (1: no long tail)."
        )
    if profile == "none":
        return class_sizes.copy()
    classes = len(class_sizes)
    largest = int(class_sizes.sum()) / classes
    share = 1 / imbalance
    if profile == "exponential":
        wanted = [int(largest * share ** (c / max(classes - 1, 1))) for c in range(classes)]
    else:
        wanted = [int(largest if c < (classes + 1) // 2 else largest * share) for c in range(classes)]
    counts = np.minimum(np.array(wanted, dtype=np.int64), class_sizes)
    if emptied := int(((counts == 0) & (class_sizes > 0)).sum()):
        raise PartitionError(
            f"imbalance is {imbalance:g}: no image would be left of {emptied} of the {classes} classes, "
            f"which have {largest:g} images each on average. It must be below {largest:g}; lower "
            "data.imbalance, or keep all images (data.long-tail = 'none')."
        )
    return counts


def long_tail_ids(
    labels: npt.NDArray[np.int64], num_classes: int, profile: str, imbalance: float, seed: int
) -> npt.NDArray[np.int64]:
    """Return the ids of the kept images, class after class.

    The subset of each class is random and comes from a generator of its own.

    Parameters
    ----------
    labels
        Labels of the whole training split, (N,), in 0..num_classes-1.
    """
    sizes = np.bincount(labels, minlength=num_classes)
    counts = long_tail_counts(sizes, profile, imbalance)
    kept = [
        generator(seed, "long tail", label).permutation(np.flatnonzero(labels == label))[: counts[label]]
        for label in range(num_classes)
    ]
    return np.concatenate(kept).astype(np.int64)
