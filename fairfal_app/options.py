"""What the run config says of the queries."""

from fairfal_app.config import QueryConfig
from fairfal_app.query.base import QueryStrategy
from fairfal_app.query.registry import build_query_strategy


def query_strategy(query: QueryConfig) -> QueryStrategy:
    """Return the query strategy that the run config describes."""
    return build_query_strategy(query.name, query.options)


def needs_local_model(query: QueryConfig) -> bool:
    """Whether queries of this run read the local-only model, so that ``query.estimate`` comes first."""
    strategy = query_strategy(query)
    return strategy.needs_predictions and (query.chosen_model != "global" or strategy.needs_local_model)
