"""What the run config says of the queries."""

from fairfal_app.query.base import QueryStrategy
from fairfal_app.query.fairfal import FairFALOptions
from fairfal_app.query.registry import build_query_strategy
from federation.config.sections import QueryConfig


def query_strategy(query: QueryConfig) -> QueryStrategy:
    """Return the query strategy that the run config describes."""
    options = FairFALOptions(
        prototypes=query.prototypes,
        kappa=query.kappa,
        uncertainty=query.uncertainty,
        gradient_probabilities=query.gradient_probabilities,
    )
    return build_query_strategy(query.name, options)


def needs_local_model(query: QueryConfig) -> bool:
    """Whether queries of this run read the local-only model, so that ``query.estimate`` comes first."""
    if query.name == "random":
        return False
    return query.chosen_model != "global" or query_strategy(query).needs_local_model
