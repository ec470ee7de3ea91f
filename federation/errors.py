"""What can go wrong in a run, said so that a reader knows what to change."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from datasets.errors import RareflError as RareflError  # every error of ours is found here
from fedraw.errors import StrategyError

USER_ERRORS = (RareflError, StrategyError)
"""What a user can cause or cure: command lines show these in one line, without a traceback."""


class ConfigError(RareflError):
    """The run config or a node config is wrong."""


class NodesMissingError(RareflError):
    """The clients that are connected are not the ones that the run needs."""


class SourceMismatchError(RareflError):
    """A client runs other source files than the server."""


class DeadWorkerError(RareflError):
    """A Ray worker died; Flower would go on with a pool of workers that loses clients."""


class LabelsLostError(RareflError):
    """A client has fewer labels than it told before."""


class AllClientsFailedError(RareflError):
    """No client answered a request with anything usable; ``reasons`` has a line of each client."""

    def __init__(self, message: str, reasons: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.reasons = tuple(reasons)


class DivergedError(RareflError):
    """A model left the numbers that can be computed with; ``status`` is that of the run."""

    status: ClassVar[Literal["diverged"]] = "diverged"

    def __init__(self, where: str, found: str) -> None:
        super().__init__(
            f"{where}: {found}. Lower train.lr, use train.precision = 'fp32' if it was 'bf16', or a smaller "
            "strategy.server-lr; the last model that could be used and the checkpoint before it are kept"
        )


class RunFolderError(RareflError):
    """The folder of a run's results cannot be used."""
