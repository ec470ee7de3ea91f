"""Errors of the strategies that a user can cause; each names the value, what is allowed and the way out."""

from flwr.serverapp.strategy import Result


class StrategyError(Exception):
    """Base of every error that ``fedraw`` raises on purpose."""


class SettingError(StrategyError):
    """A setting of a strategy, a clock or a delay model is outside of what is allowed."""


class OptionError(SettingError):
    """An option is outside of what is allowed.

    ``name``, ``value`` and ``reason`` are there for a configuration that spells names in its own way.
    """

    def __init__(self, name: str, value: object, reason: str) -> None:
        super().__init__(f"{name} = {value!r} {reason}")
        self.name = name
        self.value = value
        self.reason = reason


class UnknownNameError(StrategyError):
    """A name is in no table: a strategy, a delay model, a staleness function."""


class WeightError(StrategyError):
    """The weights of the replies give no average: all zero, negative or not finite."""


class DelayError(StrategyError):
    """A delay or availability file, or a duration that comes from one, cannot be used."""


class CheckpointError(StrategyError):
    """A checkpoint does not belong to this strategy, or to these arrays."""


class RunStoppedError(StrategyError):
    """The run cannot go on; ``result`` keeps what was aggregated so far."""

    def __init__(self, message: str, result: Result) -> None:
        super().__init__(message)
        self.result = result
