"""Query strategies: which images of a client's pool are labelled next. Pure functions of arrays."""

from fairfal_app.query.base import Audit, QueryInput, QueryModel, QueryStrategy, Selection, select
from fairfal_app.query.fairfal import FairFALOptions
from fairfal_app.query.registry import QUERY_STRATEGIES, build_query_strategy
from fairfal_app.query.scalars import (
    ClientScalars,
    QueryModelRule,
    choose_query_model,
    client_scalars,
    mean_gamma,
    model_score,
)

__all__ = [
    "QUERY_STRATEGIES",
    "Audit",
    "ClientScalars",
    "FairFALOptions",
    "QueryInput",
    "QueryModel",
    "QueryModelRule",
    "QueryStrategy",
    "Selection",
    "build_query_strategy",
    "choose_query_model",
    "client_scalars",
    "mean_gamma",
    "model_score",
    "select",
]
