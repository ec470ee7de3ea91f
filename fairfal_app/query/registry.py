"""Every query strategy by the name that the run config uses."""

import difflib
from collections.abc import Callable

from fairfal_app.query.base import QueryStrategy
from fairfal_app.query.errors import QueryOptionError
from fairfal_app.query.fairfal import FairFAL, FairFALOptions
from fairfal_app.query.random import RandomQuery
from fairfal_app.query.uncertainty import UncertaintyQuery

QUERY_STRATEGIES: dict[str, Callable[[FairFALOptions], QueryStrategy]] = {
    "fairfal": FairFAL,
    "random": lambda _: RandomQuery(),
    "entropy": lambda _: UncertaintyQuery("entropy"),
    "margin": lambda _: UncertaintyQuery("margin"),
    "least-confidence": lambda _: UncertaintyQuery("least-confidence"),
}


def build_query_strategy(name: str, options: FairFALOptions | None = None) -> QueryStrategy:
    """Return the strategy called ``name``; raises QueryOptionError that lists the names."""
    if name not in QUERY_STRATEGIES:
        near = difflib.get_close_matches(name, QUERY_STRATEGIES, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise QueryOptionError(
            f"query strategy {name!r} is not known: use {', '.join(QUERY_STRATEGIES)}{hint}"
        )
    return QUERY_STRATEGIES[name](options or FairFALOptions())
