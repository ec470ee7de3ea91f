"""All strategies by name, synchronous and asynchronous."""

import functools
from collections.abc import Callable
from typing import Any

from fedraw.names import look_up
from fedraw.rounds.synchronous import SYNCHRONOUS, PlainBuffers, build_synchronous
from fedraw.strategies.ace import ACE, ACED
from fedraw.strategies.asynchronous import AsynchronousStrategy
from fedraw.strategies.ca2fl import CA2FL
from fedraw.strategies.fedasync import FedAsync
from fedraw.strategies.fedbuff import FedBuff
from fedraw.strategies.fedraw import FedRAW
from fedraw.strategies.fedstaleweight import FedStaleWeight

TrainingStrategy = AsynchronousStrategy | PlainBuffers
"""Strategies whose state can be saved after each step, and which go on from it."""

ASYNCHRONOUS: dict[str, type[AsynchronousStrategy]] = {
    "fedasync": FedAsync,
    "fedbuff": FedBuff,
    "fedraw": FedRAW,
    "ca2fl": CA2FL,
    "ace": ACE,
    "aced": ACED,
    "fedstaleweight": FedStaleWeight,
}

STRATEGIES: dict[str, Callable[..., TrainingStrategy]] = {
    **{name: functools.partial(build_synchronous, name) for name in SYNCHRONOUS},
    **ASYNCHRONOUS,
}


def build_strategy(name: str, **settings: Any) -> TrainingStrategy:
    """Return the strategy of a name in ``STRATEGIES``.

    Settings are those of ``build_synchronous`` for the strategies of Flower, and those of the class for an
    asynchronous one.

    Raises
    ------
    UnknownNameError
        There is no strategy of that name.
    """
    return look_up(STRATEGIES, name, "strategy")(**settings)
