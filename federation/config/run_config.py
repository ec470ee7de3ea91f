"""The run config: every key, its type and its range, checked before the first client works.

Flower hands over a flat mapping (``{"train.local-epochs": 5}``) and checks neither types nor ranges.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar, overload

from pydantic import Field, ValidationError, model_validator

from federation.config.clock import ClockConfig
from federation.config.faults import describe
from federation.config.fields import LARGEST_INTEGER, Table
from federation.config.flat import fields_of, flatten, unflatten
from federation.config.sections import (
    DataConfig,
    EvaluateConfig,
    ModelConfig,
    NodesConfig,
    OutputConfig,
    TrainConfig,
)
from federation.config.strategy import StrategyTable
from federation.errors import ConfigError


class RunConfig(Table):
    """The part of the run config that a training needs; apps above have more of it in subclasses.

    Attributes
    ----------
    others
        Tables of the run config that belong to apps above this one and are not looked at.
    """

    others: ClassVar[tuple[str, ...]] = ("query", "oracle")

    app: Literal["fairfal", "fedraw"]
    seed: Annotated[int, Field(ge=0, le=LARGEST_INTEGER)]
    data: DataConfig
    model: ModelConfig
    train: TrainConfig
    strategy: StrategyTable
    clock: ClockConfig
    evaluate: EvaluateConfig
    nodes: NodesConfig
    output: OutputConfig

    @model_validator(mode="after")
    def _asynchronous(self) -> "RunConfig":
        strategy, clients = self.strategy, self.data.clients
        if strategy.asynchronous and strategy.updates_per_version > clients:
            raise ValueError(
                f"strategy.buffer-size = {strategy.updates_per_version} is more than data.clients = "
                f"{clients}; lower the buffer size or raise the number of clients"
            )
        if self.clock.timing_only and (self.app != "fedraw" or not strategy.asynchronous):
            raise ValueError(
                "clock.timing-only = true needs app = 'fedraw' and an asynchronous strategy.name, such as "
                "'fedbuff'"
            )
        if self.evaluate.clients and self.app == "fairfal" and strategy.asynchronous:
            raise ValueError(
                "evaluate.clients = true needs a synchronous strategy.name with app = 'fairfal': in an "
                "asynchronous training the clients are busy when a version is measured"
            )
        return self

    @property
    def data_seed(self) -> int:
        """The seed of long tail, partition and test split."""
        return self.seed if self.data.seed == -1 else self.data.seed

    def resolved(self) -> dict[str, Any]:
        """Return the config in tables, with what stands for something else replaced by it."""
        tables = self.model_dump(by_alias=True)
        tables["data"]["seed"] = self.data_seed
        return tables

    @property
    def steps(self) -> int:
        """Steps of the global model in one training: rounds, or versions of an asynchronous strategy.

        Unless the config says how many versions, they are as many as take the updates of ``train.rounds``
        rounds.
        """
        train, strategy = self.train, self.strategy
        if not strategy.asynchronous:
            return train.rounds
        updates = train.rounds * max(1, round(strategy.participation * self.data.clients))
        return train.versions or max(1, round(updates / strategy.updates_per_version))

    @property
    def length(self) -> int:
        """What a finished run must have more of to go on: the steps of its training."""
        return self.steps

    @property
    def may_be_raised(self) -> str:
        """The keys that make a run longer when it is resumed, in words."""
        return "train.versions or train.rounds" if self.strategy.asynchronous else "train.rounds"

    def only_longer(self, key: str, before: "RunConfig") -> bool:
        """Whether a key that differs from the run before makes it longer and leaves what it has done."""
        return key in ("train.rounds", "train.versions") and self.steps >= before.steps

    def without_effect(self) -> dict[str, str]:
        """Return the keys that do nothing in this run, each with the reason in words."""
        unused = self.strategy.without_effect() | self.clock.without_effect()
        in_rounds = f"strategy.name = {self.strategy.name!r} works in rounds"
        if self.strategy.asynchronous:
            if self.train.versions:
                unused["strategy.participation"] = unused["train.rounds"] = (
                    f"train.versions = {self.train.versions} says how long the training is"
                )
        else:
            for key in ("dispatch", "job-timeout", "availability", "probability", "ask-again"):
                unused[f"clock.{key}"] = in_rounds
            unused |= {"clock.availability-file": in_rounds, "train.versions": in_rounds}
        return unused

    def flat(self) -> dict[str, Any]:
        """Return the config as Flower carries it: dotted keys, plain values."""
        return flatten(self.model_dump(by_alias=True))


AnyRunConfig = TypeVar("AnyRunConfig", bound=RunConfig)


def known_keys(model: type[RunConfig] = RunConfig) -> tuple[str, ...]:
    """Return every key of the run config, dotted."""
    return tuple(key for key, _ in fields_of(model))


@overload
def parse_run_config(flat: Mapping[str, Any]) -> RunConfig: ...


@overload
def parse_run_config(flat: Mapping[str, Any], model: type[AnyRunConfig]) -> AnyRunConfig: ...


def parse_run_config(flat: Mapping[str, Any], model: type[RunConfig] = RunConfig) -> RunConfig:
    """Return the checked run config.

    Parameters
    ----------
    flat
        Dotted keys to values, as in Flower's ``context.run_config``.
    model
        How much of it is needed; the tables of other apps are left out.

    Raises
    ------
    ConfigError
        Names each key at fault, its value and what is allowed.
    """
    tables = {name: table for name, table in unflatten(flat).items() if name not in model.others}
    try:
        return model.model_validate(tables)
    except ValidationError as error:
        faults = [describe(details, model) for details in error.errors()]
        raise ConfigError("run config: " + "; ".join(faults)) from None


def default_run_config() -> dict[str, Any]:
    """Return the defaults of ``pyproject.toml``, flat."""
    path = Path(__file__).parents[2] / "pyproject.toml"
    with path.open("rb") as file:
        return flatten(tomllib.load(file)["tool"]["flwr"]["app"]["config"])


def with_defaults(flat: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return a run config that an earlier version wrote with the keys that it did not know yet.

    They have their defaults, which leave a run as it was before there was the key; they come second, too.
    """
    defaults = default_run_config()
    return defaults | dict(flat), tuple(key for key in defaults if key not in flat)
