"""A strategy and a query strategy as somebody would add them, for tests of what registries are read for."""

from dataclasses import dataclass

from fairfal_app.query.base import QueryOptions
from fairfal_app.query.random import RandomQuery
from fedraw.options import option
from fedraw.strategies.fedbuff import FedBuff


@dataclass(frozen=True)
class ToyOptions(FedBuff.Options):  # type: ignore[name-defined, misc]
    toy_share: float = option(0.25, "share of toys in a very long explanation " * 6, above=0, at_most=1)
    toy_manner: str = option("calm", "how it plays", choices=("calm", "wild"))


class Toy(FedBuff):
    """Plays with updates.

    More about it.
    """

    paper = "arXiv 0000.00001"
    Options = ToyOptions


@dataclass(frozen=True)
class ToyQueryOptions(QueryOptions):
    toy_count: int = option(3, "toys asked for", at_least=1)


class ToyQuery(RandomQuery):
    """Asks for toys."""

    paper = "arXiv 0000.00002"
    Options = ToyQueryOptions
