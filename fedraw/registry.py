"""All strategies by name, synchronous and asynchronous: the only list of their names."""

from typing import Any

from fedraw.names import look_up
from fedraw.rounds.synchronous import (
    SteadyFedAdam,
    SteadyFedAvg,
    SteadyFedProx,
    SteadyFedYogi,
    SteadyRounds,
)
from fedraw.strategies.ace import ACE, ACED
from fedraw.strategies.asynchronous import AsynchronousStrategy
from fedraw.strategies.ca2fl import CA2FL
from fedraw.strategies.fedasync import FedAsync
from fedraw.strategies.fedbuff import FedBuff
from fedraw.strategies.fedraw import FedRAW
from fedraw.strategies.fedstaleweight import FedStaleWeight

TrainingStrategy = AsynchronousStrategy | SteadyRounds
"""Strategies whose state can be saved after each step, and which go on from it."""

STRATEGIES: dict[str, type[AsynchronousStrategy] | type[SteadyRounds]] = {
    "fedavg": SteadyFedAvg,
    "fedprox": SteadyFedProx,
    "fedadam": SteadyFedAdam,
    "fedyogi": SteadyFedYogi,
    "fedasync": FedAsync,
    "fedbuff": FedBuff,
    "fedraw": FedRAW,
    "ca2fl": CA2FL,
    "ace": ACE,
    "aced": ACED,
    "fedstaleweight": FedStaleWeight,
}

ASYNCHRONOUS: dict[str, type[AsynchronousStrategy]] = {
    name: kind for name, kind in STRATEGIES.items() if issubclass(kind, AsynchronousStrategy)
}
SYNCHRONOUS: dict[str, type[SteadyRounds]] = {
    name: kind for name, kind in STRATEGIES.items() if issubclass(kind, SteadyRounds)
}


def build_strategy(name: str, **settings: Any) -> TrainingStrategy:
    """Return the strategy of a name in ``STRATEGIES``, made with the settings of its class.

    Raises
    ------
    UnknownNameError
        There is no strategy of that name.
    """
    return look_up(STRATEGIES, name, "strategy")(**settings)
