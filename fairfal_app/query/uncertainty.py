"""Uncertainty of predictions, higher = more uncertain, and the strategies that go by it alone."""

from collections.abc import Callable

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

    def __init__(self, name: str) -> None:
        self.name = name
        self._uncertainty = UNCERTAINTIES[name]

    def select(self, inputs: QueryInput, budget: int, rng: np.random.Generator) -> np.ndarray:
        """Return the ``budget`` most uncertain positions."""
        return by_falling_uncertainty(self._uncertainty(inputs.scores.probabilities))[:budget]
