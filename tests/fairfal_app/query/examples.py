"""Query inputs for tests: random ones, and hand-made ones from short lists."""

from dataclasses import replace

import numpy as np

from fairfal_app.query.base import QueryInput
from learning.predict import Predictions


def predictions(probabilities: list | np.ndarray, features: list | np.ndarray) -> Predictions:
    return Predictions(np.array(probabilities, dtype=np.float64), np.array(features, dtype=np.float32))


def random_predictions(rng: np.random.Generator, count: int, classes: int, features: int) -> Predictions:
    """Uneven probabilities and non-negative features, as from a ReLU."""
    return predictions(
        rng.dirichlet(np.full(classes, 0.5), size=count), np.maximum(rng.normal(size=(count, features)), 0)
    )


def random_input(
    rng: np.random.Generator,
    pool: int = 40,
    labels: np.ndarray | list[int] = (0, 0, 1, 2, 2, 2, 1),
    classes: int = 4,
    features: int = 6,
    query_model: str = "global",
) -> QueryInput:
    labels = np.array(labels, dtype=np.int64)
    return QueryInput(
        pool_global=random_predictions(rng, pool, classes, features),
        pool_local=random_predictions(rng, pool, classes, features),
        labelled_global=random_predictions(rng, len(labels), classes, features),
        labelled_local=random_predictions(rng, len(labels), classes, features),
        labels=labels,
        query_model=query_model,
        gamma_mean=0.4,
    )


def take(predictions_: Predictions, rows: np.ndarray) -> Predictions:
    return Predictions(predictions_.probabilities[rows], predictions_.features[rows])


def reorder_pool(inputs: QueryInput, rows: np.ndarray) -> QueryInput:
    """The same query over the pool images ``rows``, in that order; rows may repeat."""
    return replace(
        inputs, pool_global=take(inputs.pool_global, rows), pool_local=take(inputs.pool_local, rows)
    )
