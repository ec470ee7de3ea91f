"""The random query, the baseline of every other."""

import numpy as np

from fairfal_app.query.base import QueryInput, QueryStrategy, random_positions


class RandomQuery(QueryStrategy):
    """Images drawn uniformly without replacement."""

    paper = "baseline, no paper"
    needs_predictions = False

    def select(self, inputs: QueryInput, budget: int, rng: np.random.Generator) -> np.ndarray:
        """Return ``budget`` positions drawn from ``rng``."""
        return random_positions(inputs.pool_size, budget, rng)
