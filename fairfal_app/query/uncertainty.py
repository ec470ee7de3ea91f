"""Uncertainty of predictions, higher = more uncertain, and the strategies that go by it alone."""

from collections.abc import Callable
from typing import ClassVar

import numpy as np
from scipy.special import entr

from fairfal_app.query.base import QueryInput, QueryStrategy
from fairfal_app.query.errors import QueryInputError


def entropy(probabilities: np.ndarray) -> np.ndarray:
    """Return -sum_c p_c ln p_c / ln C with 0 ln 0 = 0, in [0, 1], from (N, C); 0 if there is one class."""
    num_classes = probabilities.shape[1]
    if num_classes == 1:
        return np.zeros(len(probabilities))
    return entr(np.maximum(probabilities, 0)).sum(axis=1) / np.log(num_classes)


def margin(probabilities: np.ndarray) -> np.ndarray:
    """Return the second largest less the largest probability, in [-1, 0], from (N, C).

    Not shifted to [0, 1]: that would round tiny margins to ties. Raises QueryInputError if there is one
    class.
    """
    if probabilities.shape[1] < 2:
        raise QueryInputError(
            "uncertainty 'margin' needs at least 2 classes: use entropy or least-confidence"
        )
    two_largest = np.partition(probabilities, -2, axis=1)[:, -2:]
    return two_largest[:, 0] - two_largest[:, 1]


def least_confidence(probabilities: np.ndarray) -> np.ndarray:
    """Return less the largest probability, in [-1, 0], from (N, C)."""
    return -probabilities.max(axis=1)


UNCERTAINTIES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "entropy": entropy,
    "margin": margin,
    "least-confidence": least_confidence,
}


def by_falling_uncertainty(uncertainty: np.ndarray) -> np.ndarray:
    """Return positions from the most to the least uncertain; ties go to the lower position."""
    return np.argsort(-uncertainty, kind="stable")


class UncertaintyQuery(QueryStrategy):
    """The images of which the query model is least certain, by one entry of ``UNCERTAINTIES``."""

    uncertainty: ClassVar[str]

    def select(self, inputs: QueryInput, budget: int, rng: np.random.Generator) -> np.ndarray:
        """Return the ``budget`` most uncertain positions."""
        uncertainty = UNCERTAINTIES[self.uncertainty](inputs.scores.probabilities)
        return by_falling_uncertainty(uncertainty)[:budget]


class EntropyQuery(UncertaintyQuery):
    """The images whose predicted probabilities have the highest entropy."""

    paper = "Settles 2009, TR 1648"
    uncertainty = "entropy"


class MarginQuery(UncertaintyQuery):
    """The images whose two most probable classes are closest to each other."""

    paper = "Scheffer et al. 2001, doi 10.1007/3-540-44816-0_31"
    uncertainty = "margin"


class LeastConfidenceQuery(UncertaintyQuery):
    """The images whose most probable class is the least probable."""

    paper = "Lewis and Gale 1994, arXiv cmp-lg/9407020"
    uncertainty = "least-confidence"
