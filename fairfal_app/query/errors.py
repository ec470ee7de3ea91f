"""Errors of a query."""

from federation.errors import RareflError


class QueryError(RareflError):
    """Something about a query is wrong; the base of every error of this package."""


class QueryOptionError(QueryError):
    """A strategy's name or option is not allowed."""


class QueryInputError(QueryError):
    """The arrays or numbers given to a query cannot be used."""


class MissingLocalModelError(QueryInputError):
    """A query reads predictions of the local-only model, and none were given."""

    def __init__(self, what: str, reader: str) -> None:
        super().__init__(
            f"{what} is missing, and {reader} reads the local-only model: train it on the labelled set and "
            "give its predictions, or choose the global model"
        )


class QueryContractError(QueryError):
    """A strategy broke the contract: exactly min(budget, pool) distinct positions of the pool."""

    def __init__(self, strategy: str, fault: str) -> None:
        super().__init__(f"query strategy {strategy!r} {fault}")
