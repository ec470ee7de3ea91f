"""The table ``strategy`` of the run config: the name of a strategy, and the options of all of them."""

from typing import TYPE_CHECKING, ClassVar

from federation.config.options import OptionTable, option_table
from fedraw.registry import STRATEGIES


class StrategyConfig(OptionTable):
    """How updates become a global model; ``option_table`` adds the options of all strategies."""

    table: ClassVar[str] = "strategy"

    participation: float

    @property
    def asynchronous(self) -> bool:
        """Whether the strategy makes versions out of single arrivals, not rounds."""
        return bool(self.chosen.asynchronous)

    @property
    def updates_per_version(self) -> int:
        """Updates that make a version of an asynchronous strategy."""
        return int(self.options.updates_per_version)


if TYPE_CHECKING:
    StrategyTable = StrategyConfig
else:
    StrategyTable = option_table(StrategyConfig, STRATEGIES)
