"""What an asynchronous run returns."""

from dataclasses import dataclass, field
from typing import Any

from flwr.serverapp.strategy import Result


@dataclass
class AsynchronousResult(Result):
    """Flower's result, with versions in the place of rounds.

    Attributes
    ----------
    influence
        Counts and biases of the run; see ``Influence.summary``.
    """

    influence: dict[str, Any] = field(default_factory=dict)
