"""Asynchronous strategies for Flower that take the place of ``FedAvg``, FedRAW among them.

Needs flwr and numpy only.
"""

from fedraw.clock import Clock, VirtualClock, WallClock
from fedraw.registry import ASYNCHRONOUS, STRATEGIES, SYNCHRONOUS, build_strategy
from fedraw.run.events import Event
from fedraw.run.result import AsynchronousResult
from fedraw.strategies.ace import ACE, ACED
from fedraw.strategies.asynchronous import AsynchronousStrategy
from fedraw.strategies.ca2fl import CA2FL
from fedraw.strategies.fedasync import FedAsync
from fedraw.strategies.fedbuff import FedBuff
from fedraw.strategies.fedraw import FedRAW
from fedraw.strategies.fedstaleweight import FedStaleWeight

__all__ = [
    "ACE",
    "ACED",
    "ASYNCHRONOUS",
    "CA2FL",
    "STRATEGIES",
    "SYNCHRONOUS",
    "AsynchronousResult",
    "AsynchronousStrategy",
    "Clock",
    "Event",
    "FedAsync",
    "FedBuff",
    "FedRAW",
    "FedStaleWeight",
    "VirtualClock",
    "WallClock",
    "build_strategy",
]
