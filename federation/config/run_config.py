"""The run config: every key, its type and its range, checked before the first client works.

Flower hands over a flat mapping (``{"train.local-epochs": 5}``) and checks neither types nor ranges.
"""

import difflib
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from federation.config.sections import (
    ClockConfig,
    DataConfig,
    EvaluateConfig,
    ModelConfig,
    NodesConfig,
    OracleConfig,
    OutputConfig,
    QueryConfig,
    StrategyConfig,
    Table,
    TrainConfig,
)
from federation.errors import ConfigError


class RunConfig(Table):
    """The whole run config."""

    app: Literal["fairfal", "fedraw"]
    seed: Annotated[int, Field(ge=0, lt=2**63)]
    data: DataConfig
    model: ModelConfig
    train: TrainConfig
    strategy: StrategyConfig
    clock: ClockConfig
    query: QueryConfig
    oracle: OracleConfig
    evaluate: EvaluateConfig
    nodes: NodesConfig
    output: OutputConfig

    @model_validator(mode="after")
    def _asynchronous(self) -> "RunConfig":
        strategy, clients = self.strategy, self.data.clients
        if strategy.asynchronous and strategy.updates_per_version > clients:
            raise ValueError(
                f"strategy.buffer-size = {strategy.buffer_size} is more than data.clients = {clients}; "
                "lower the buffer size or raise the number of clients"
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
        if self.query.name != "random":
            tables["query"]["model"] = self.query.chosen_model
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

    def flat(self) -> dict[str, Any]:
        """Return the config as Flower carries it: dotted keys, plain values."""
        return flatten(self.model_dump(by_alias=True))


def flatten(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return ``{"data.name": "digits"}`` for ``{"data": {"name": "digits"}}``."""
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _unflatten(flat: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        table = nested
        *tables, last = key.split(".")
        for name in tables:
            table = table.setdefault(name, {})
            if not isinstance(table, dict):
                raise ConfigError(
                    f"run config: {key} cannot stand beside a value for {name}; keep one of the two"
                )
        table[last] = value
    return nested


def _keys(table: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for field in table.model_fields.values():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _keys(field.annotation, f"{prefix}{field.alias}.")
        else:
            yield f"{prefix}{field.alias}"


def known_keys() -> tuple[str, ...]:
    """Return every key of the run config, dotted."""
    return tuple(_keys(RunConfig))


def _unknown(key: str) -> str:
    names = known_keys()
    near = difflib.get_close_matches(key, names, n=1, cutoff=0.6)
    if not near:
        near = [name for name in names if name.split(".")[-1] == key.split(".")[-1]][:1]
    hint = f"; did you mean {near[0]}?" if near else f"; the keys are {', '.join(names)}"
    return f"{key} is not a key of the run config{hint}"


_BOUNDS = {
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "finite_number": "a finite number",
    "string_pattern_mismatch": 'whole numbers with commas between them, such as "8,9"',
}
_TYPES = {
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": 'a text in quotes, such as key="text"',
}


def _describe(error: ErrorDetails) -> str:
    key = ".".join(str(part) for part in error["loc"])
    kind, context, value = error["type"], error.get("ctx", {}), error.get("input")
    if kind == "extra_forbidden":
        keys = [f"{key}.{inner}" for inner in flatten(value)] if isinstance(value, Mapping) else [key]
        return "; ".join(map(_unknown, keys))
    if kind == "missing":
        return f"{key} is missing; pyproject.toml has its default under [tool.flwr.app.config]"
    if kind == "value_error":
        return str(context["error"])
    if kind == "model_type":
        return f"{key} = {value!r} is not allowed: it is a table of keys, such as {key}.<key> = <value>"
    if kind == "literal_error":
        near = difflib.get_close_matches(str(value), _choices(key), n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        return f"{key} = {value!r} is not allowed: it must be one of {', '.join(_choices(key))}{hint}"
    wanted = _BOUNDS.get(kind, _TYPES.get(kind, error["msg"])).format(**context)
    return f"{key} = {value!r} is not allowed: it must be {wanted}"


def _choices(key: str) -> tuple[str, ...]:
    table: type[BaseModel] = RunConfig
    *tables, last = key.split(".")
    fields = {field.alias: field for field in table.model_fields.values()}
    for name in tables:
        annotation = fields[name].annotation
        assert annotation is not None
        fields = {field.alias: field for field in annotation.model_fields.values()}
    return get_args(fields[last].annotation)


def parse_run_config(flat: Mapping[str, Any]) -> RunConfig:
    """Return the checked run config.

    Parameters
    ----------
    flat
        Dotted keys to values, as in Flower's ``context.run_config``.

    Raises
    ------
    ConfigError
        Names each key at fault, its value and what is allowed.
    """
    try:
        return RunConfig.model_validate(_unflatten(flat))
    except ValidationError as error:
        faults = [_describe(details) for details in error.errors()]
        raise ConfigError("run config: " + "; ".join(faults)) from None


def default_run_config() -> dict[str, Any]:
    """Return the defaults of ``pyproject.toml``, flat."""
    path = Path(__file__).parents[2] / "pyproject.toml"
    with path.open("rb") as file:
        return flatten(tomllib.load(file)["tool"]["flwr"]["app"]["config"])
