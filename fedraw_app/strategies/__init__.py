"""How updates are aggregated: asynchronous strategies for Flower, and its synchronous ones by name."""

from fedraw_app.strategies.ace import ACE, ACED
from fedraw_app.strategies.base import AsynchronousStrategy
from fedraw_app.strategies.ca2fl import CA2FL
from fedraw_app.strategies.events import Event
from fedraw_app.strategies.fedasync import FedAsync
from fedraw_app.strategies.fedbuff import FedBuff
from fedraw_app.strategies.fedraw import FedRAW
from fedraw_app.strategies.fedstaleweight import FedStaleWeight
from fedraw_app.strategies.registry import ASYNCHRONOUS, STRATEGIES, build_strategy
from fedraw_app.strategies.result import AsynchronousResult
from fedraw_app.strategies.synchronous import SYNCHRONOUS, build_synchronous

__all__ = [
    "ACE",
    "ACED",
    "ASYNCHRONOUS",
    "CA2FL",
    "STRATEGIES",
    "SYNCHRONOUS",
    "AsynchronousResult",
    "AsynchronousStrategy",
    "Event",
    "FedAsync",
    "FedBuff",
    "FedRAW",
    "FedStaleWeight",
    "build_strategy",
    "build_synchronous",
]
