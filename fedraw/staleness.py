"""How much an update counts that was trained on an old version.

A staleness function maps tau, the number of versions published between the dispatch of a job and the flush
that uses it, to a factor in [0, 1]; it is 1 at 0 and does not increase.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedraw.errors import SettingError
from fedraw.names import look_up

StalenessFunction = Callable[[int], float]


@dataclass(frozen=True)
class Constant:
    """Every update counts in full."""

    def __call__(self, tau: int) -> float:
        """Return 1."""
        return 1.0


@dataclass(frozen=True)
class Polynomial:
    """``(1 + tau)^-exponent`` (FedBuff, arXiv 2106.06639, with 0.5; FedAsync, arXiv 1903.03934)."""

    exponent: float = 0.5

    def __post_init__(self) -> None:
        """Check the range."""
        if not (self.exponent >= 0 and math.isfinite(self.exponent)):
            raise SettingError(
                f"the staleness exponent is {self.exponent}; it must be finite and not negative"
            )

    def __call__(self, tau: int) -> float:
        """Return the factor."""
        return float((1.0 + tau) ** -self.exponent)


@dataclass(frozen=True)
class Hinge:
    """1 up to ``knee``, then ``1 / (slope (tau - knee) + 1)`` (FedAsync, arXiv 1903.03934)."""

    slope: float = 1.0
    knee: float = 4.0

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not (self.slope >= 0 and self.knee >= 0 and math.isfinite(self.slope + self.knee)):
            raise SettingError(
                f"the staleness hinge has slope {self.slope} and knee {self.knee}; both must be finite and "
                "not negative"
            )

    def __call__(self, tau: int) -> float:
        """Return the factor."""
        return 1.0 if tau <= self.knee else 1.0 / (self.slope * (tau - self.knee) + 1.0)


STALENESS: dict[str, type[Constant] | type[Polynomial] | type[Hinge]] = {
    "constant": Constant,
    "polynomial": Polynomial,
    "hinge": Hinge,
}


def build_staleness(name: str, **settings: float) -> StalenessFunction:
    """Return the staleness function of a name in ``STALENESS``."""
    return look_up(STALENESS, name, "staleness function")(**settings)


def staleness_factors(function: StalenessFunction, taus: Sequence[int]) -> np.ndarray:
    """Return s(tau) of each update, (k,) float64.

    Raises
    ------
    SettingError
        A function of one's own gives something outside of [0, 1].
    """
    factors = np.array([function(tau) for tau in taus], dtype=np.float64)
    if not np.all((factors >= 0) & (factors <= 1)):
        raise SettingError(f"{function} gives {factors.tolist()} for tau {list(taus)}; factors lie in [0, 1]")
    return factors
