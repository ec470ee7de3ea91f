"""Every query strategy by the name that the run config uses. A new one is a file and a line here."""

from typing import Any

from datasets.names import unknown
from fairfal_app.query.base import QueryStrategy
from fairfal_app.query.errors import QueryOptionError
from fairfal_app.query.fairfal import FairFAL
from fairfal_app.query.random import RandomQuery
from fairfal_app.query.uncertainty import EntropyQuery, LeastConfidenceQuery, MarginQuery

QUERY_STRATEGIES: dict[str, type[QueryStrategy]] = {
    "fairfal": FairFAL,
    "random": RandomQuery,
    "entropy": EntropyQuery,
    "margin": MarginQuery,
    "least-confidence": LeastConfidenceQuery,
}


def build_query_strategy(name: str, options: Any = None) -> QueryStrategy:
    """Return the strategy called ``name``.

    Parameters
    ----------
    options
        An instance of its ``Options``; None takes the defaults.

    Raises
    ------
    QueryOptionError
        There is no such strategy, or the options are those of another one.
    """
    if name not in QUERY_STRATEGIES:
        raise QueryOptionError(unknown("query strategy", name, QUERY_STRATEGIES))
    chosen = QUERY_STRATEGIES[name]
    if options is not None and type(options) is not chosen.Options:
        raise QueryOptionError(
            f"query strategy {name!r} takes {chosen.Options.__name__}, not {type(options).__name__}"
        )
    strategy = chosen(options)
    strategy.name = name
    return strategy
