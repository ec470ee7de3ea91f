"""Options of strategies: what a configuration can set, with default, range and help, beside each strategy.

A field made by ``option`` carries all that a configuration, a command line or a page of documentation needs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, get_args

from fedraw.aggregation import Normalisation
from fedraw.errors import OptionError
from fedraw.staleness import STALENESS, StalenessFunction, build_staleness

# Below what TOML and Flower's run config can carry.
LARGE = 2**63


def option(
    default: Any,
    help: str,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    choices: Sequence[str] = (),
) -> Any:
    """Return a dataclass field for one option of a strategy.

    Parameters
    ----------
    default
        Its value unless the configuration says another.
    help
        One line without a full stop.
    at_least, above, at_most, below
        Bounds of a number; None where there is none.
    choices
        All values of a name; empty for a number.
    """
    metadata = {
        "help": help,
        "at_least": at_least,
        "above": above,
        "at_most": at_most,
        "below": below,
        "choices": tuple(choices),
    }
    return field(default=default, metadata=metadata)


def server_lr_option() -> Any:
    """Return the field of the server's learning rate, the same for all strategies that have one."""
    return option(
        0.0,
        "the server's learning rate; 0: 0.01 for fedadam and fedyogi, 1 / clients for ace and aced, else 1",
        at_least=0,
    )


_BOUNDS = {
    "at_least": ("at least", float.__ge__),
    "above": ("above", float.__gt__),
    "at_most": ("at most", float.__le__),
    "below": ("below", float.__lt__),
}


def check_options(options: "StrategyOptions") -> None:
    """Check every option against its range, and what must hold among them.

    Raises
    ------
    OptionError
        With the first option at fault, its value, and what is allowed.
    """
    for each in fields(options):
        value, metadata = getattr(options, each.name), each.metadata
        if choices := metadata["choices"]:
            if value not in choices:
                raise OptionError(each.name, value, f"is not one of {', '.join(choices)}")
            continue
        number = float(value)
        bounds = {name: metadata[name] for name in _BOUNDS if metadata[name] is not None}
        fine = math.isfinite(number) and all(_BOUNDS[name][1](number, float(b)) for name, b in bounds.items())
        if not fine:
            allowed = " and ".join(f"{_BOUNDS[name][0]} {bound}" for name, bound in bounds.items())
            raise OptionError(each.name, value, f"must be {allowed or 'finite'}")
    options.check()


@dataclass(frozen=True)
class StrategyOptions:
    """What every strategy has."""

    participation: float = option(
        1.0,
        "share of the clients that train in a round; as many updates take part in an asynchronous training",
        above=0,
        at_most=1,
    )

    def check(self) -> None:
        """Raise OptionError where options that are each in range do not go together."""

    def settings(self, clients: int) -> dict[str, Any]:
        """Return the keyword arguments of the strategy that these options stand for.

        ``clients`` is the number of clients, on which some defaults depend.
        """
        return {}


@dataclass(frozen=True)
class SynchronousOptions(StrategyOptions):
    """Options of the strategies that work in rounds."""

    def settings(self, clients: int) -> dict[str, Any]:
        """Return the keyword arguments of the strategy."""
        return {"participation": self.participation}


@dataclass(frozen=True)
class AsynchronousOptions(StrategyOptions):
    """Options of every asynchronous strategy."""

    server_lr: float = server_lr_option()
    concurrency: int = option(10, "most jobs in flight", at_least=1, below=LARGE)
    max_staleness: int = option(-1, "older updates are dropped; -1: none (aced: 10)", at_least=-1)

    @property
    def updates_per_version(self) -> int:
        """Updates that make a version."""
        return 1

    def default_server_lr(self, clients: int) -> float:
        """Return the server's learning rate that the strategy has of itself."""
        return 1.0

    def settings(self, clients: int) -> dict[str, Any]:
        """Return the keyword arguments of the strategy."""
        settings: dict[str, Any] = {
            "server_lr": self.server_lr or self.default_server_lr(clients),
            "concurrency": self.concurrency,
        }
        if self.max_staleness >= 0:
            settings["max_staleness"] = self.max_staleness
        return settings


@dataclass(frozen=True)
class WeightedOptions(AsynchronousOptions):
    """Options of the asynchronous strategies that weigh updates, and damp stale ones."""

    weigh_by: str = option("uniform", "weights before staleness and rarity", choices=("uniform", "examples"))
    normalise: str = option(
        "entries",
        "what weights are divided by: entries (to sum to 1, then staleness), buffer (its size), or weights",
        choices=get_args(Normalisation),
    )
    staleness: str = option(
        "default",
        "how stale updates are damped; default: the strategy's own",
        choices=("default", *STALENESS),
    )
    staleness_exponent: float = option(0.5, "polynomial: (1 + tau)^-exponent", at_least=0)
    staleness_slope: float = option(1.0, "hinge: 1 / (slope (tau - knee) + 1) beyond the knee", at_least=0)
    staleness_knee: float = option(4.0, "hinge: versions up to which an update counts in full", at_least=0)

    def settings(self, clients: int) -> dict[str, Any]:
        """Return the keyword arguments of the strategy."""
        own = {"weigh_by": self.weigh_by, "normalise": self.normalise}
        if self.staleness != "default":
            own["staleness"] = self._staleness()  # type: ignore[assignment]
        return super().settings(clients) | own

    def _staleness(self) -> StalenessFunction:
        prefix = "staleness_"
        function = STALENESS[self.staleness]
        parameters = {each.name: getattr(self, prefix + each.name) for each in fields(function)}
        return build_staleness(self.staleness, **parameters)


@dataclass(frozen=True)
class BufferedOptions(WeightedOptions):
    """Options of the asynchronous strategies with a buffer."""

    buffer_size: int = option(
        4, "updates that make a version; fedasync, ace and aced take each at once", at_least=1, below=LARGE
    )

    @property
    def updates_per_version(self) -> int:
        """Updates that make a version."""
        return self.buffer_size

    def settings(self, clients: int) -> dict[str, Any]:
        """Return the keyword arguments of the strategy."""
        return super().settings(clients) | {"buffer_size": self.buffer_size}
