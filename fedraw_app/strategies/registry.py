"""All strategies by name, synchronous and asynchronous."""

import functools
from collections.abc import Callable
from typing import Any

from fedraw_app.strategies.ace import ACE, ACED
from fedraw_app.strategies.base import AsynchronousStrategy
from fedraw_app.strategies.ca2fl import CA2FL
from fedraw_app.strategies.fedasync import FedAsync
from fedraw_app.strategies.fedbuff import FedBuff
from fedraw_app.strategies.fedraw import FedRAW
from fedraw_app.strategies.fedstaleweight import FedStaleWeight
from fedraw_app.strategies.synchronous import SYNCHRONOUS, PlainBuffers, build_synchronous
from fedraw_app.tables import look_up

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
