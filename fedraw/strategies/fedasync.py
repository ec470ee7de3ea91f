"""FedAsync: every arrival is mixed into the model (arXiv 1903.03934)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Unpack

import numpy as np

from fedraw import aggregation
from fedraw.aggregation import Arrays
from fedraw.errors import OptionError, SettingError
from fedraw.options import AsynchronousOptions, WeightedOptions, option
from fedraw.run.buffer import Entry
from fedraw.strategies.asynchronous import AsynchronousStrategy
from fedraw.strategies.settings import AsynchronousSettings


@dataclass(frozen=True)
class FedAsyncOptions(WeightedOptions):
    """Options of FedAsync."""

    mixing: float = option(0.6, "share of an arriving model in the next version", above=0, at_most=1)

    def check(self) -> None:
        """Refuse a server learning rate: there is none."""
        if self.server_lr not in (0.0, 1.0):
            raise OptionError(
                "server_lr",
                self.server_lr,
                "is not allowed for fedasync, whose step is mixing; leave it at 0.0",
            )

    def settings(self, clients: int) -> dict[str, Any]:
        """Return the keyword arguments of the strategy."""
        return super().settings(clients) | {"mixing": self.mixing}


class FedAsync(AsynchronousStrategy):
    """Mixes every arriving model into the global one, less of it the staler it is.

    ``w <- (1 - a s(tau)) w + a s(tau) w_i`` at every arrival. It alone mixes models: a client's whole model,
    not its change, is averaged into the present one.

    Parameters
    ----------
    mixing : float
        a, in (0, 1].
    **settings
        See ``AsynchronousStrategy``; there is no buffer and no server learning rate.
    """

    paper: ClassVar[str] = "arXiv 1903.03934"
    Options: ClassVar[type[AsynchronousOptions]] = FedAsyncOptions
    buffered: ClassVar[bool] = False
    buffer_size: int = 1

    def __init__(self, *, mixing: float = 0.6, **settings: Unpack[AsynchronousSettings]) -> None:
        super().__init__(**settings)
        if not (0 < mixing <= 1 and math.isfinite(mixing)):
            raise SettingError(f"mixing is {mixing}; it must be in (0, 1]")
        if self.server_lr != 1.0:
            raise SettingError(
                f"server_lr is {self.server_lr}; FedAsync has none (1.0), its step is `mixing`"
            )
        self.mixing = mixing

    def received(self, entry: Entry, sent: Arrays) -> None:
        """Turn the client's change back into its model; the buffer of one is used at once."""
        super().received(entry, sent)
        entry.deltas = {key: sent[key] + delta for key, delta in entry.deltas.items()}

    def coefficients(self, entries: Sequence[Entry], taus: Sequence[int]) -> np.ndarray:
        """Return ``a s(tau)``."""
        return self.mixing * super().coefficients(entries, taus)

    def update(self, arrays: Arrays, entries: Sequence[Entry], factors: np.ndarray) -> Arrays:
        """Mix the client's model into the present one."""
        model = entries[0].deltas
        step = {key: aggregation.weighted_sum(factors, [model[key] - arrays[key]]) for key in model}
        return self.apply(arrays, step, entries, factors)
