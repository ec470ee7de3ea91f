"""The run config: every key, its type and its range, checked before the first client works.

Flower hands over a flat mapping (``{"train.local-epochs": 5}``) and checks neither types nor ranges. The
defaults stand in ``pyproject.toml`` and nowhere else, so the models below have none.
"""

import difflib
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from datasets.budget import label_rounds
from federation.errors import ConfigError

DatasetName = Literal["digits", "fashion-mnist"]
StrategyName = Literal["fedavg", "fedprox", "fedadam", "fedyogi"]
QueryName = Literal["fairfal", "random", "entropy", "margin", "least-confidence"]

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]


class _Table(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        alias_generator=lambda name: name.replace("_", "-"),
    )


class DataConfig(_Table):
    """What the data is and how it lies at the clients."""

    name: DatasetName
    root: str
    clients: Count
    partition: Literal["dirichlet", "iid"]
    alpha: Positive
    long_tail: Literal["exponential", "step", "none"]
    imbalance: Annotated[float, Field(ge=1)]
    seed: Annotated[int, Field(ge=-1)]


class ModelConfig(_Table):
    """The network."""

    name: Literal["cnn4"]


class TrainConfig(_Table):
    """Local training (FairFAL, arXiv 2603.10341, experimental set-up)."""

    rounds: Count
    local_epochs: Count
    batch_size: Count
    lr: Positive
    momentum: Annotated[float, Field(ge=0, lt=1)]
    weight_decay: NotNegative
    lr_decay: Annotated[float, Field(gt=0, le=1)]
    lr_decay_at: Annotated[float, Field(ge=0, le=1)]
    flip: bool
    precision: Literal["fp32", "bf16"]
    local_only_epochs: Count


class StrategyConfig(_Table):
    """How updates become a global model."""

    name: StrategyName
    participation: Annotated[float, Field(gt=0, le=1)]
    proximal_mu: NotNegative
    server_lr: Positive


class QueryConfig(_Table):
    """Which images are labelled, and how many."""

    name: QueryName
    label_ratio: Annotated[float, Field(gt=0, le=1)]
    last_label_ratio: Annotated[float, Field(gt=0, le=1)]
    model: Literal["default", "adaptive", "global", "local", "opposite"]
    prototypes: Literal["global", "local", "none"]
    uncertainty: Literal["entropy", "margin", "least-confidence"]
    kappa: Annotated[float, Field(ge=1)]
    delta: Annotated[float, Field(ge=0, le=1)]
    gradient_probabilities: Literal["global", "auto"]

    @model_validator(mode="after")
    def _ratios(self) -> "QueryConfig":
        if self.last_label_ratio < self.label_ratio:
            raise ValueError(
                f"query.last-label-ratio = {self.last_label_ratio} is below query.label-ratio = "
                f"{self.label_ratio}; the first label round already reaches the latter"
            )
        return self

    @property
    def chosen_model(self) -> Literal["adaptive", "global", "local", "opposite"]:
        """The rule that chooses the query model, with ``default`` resolved for the strategy."""
        if self.model == "default":
            return "adaptive" if self.name == "fairfal" else "global"
        return self.model

    @property
    def label_rounds(self) -> int:
        """Number of label rounds."""
        return label_rounds(self.label_ratio, self.last_label_ratio)


class OracleConfig(_Table):
    """Who answers a query."""

    name: Literal["simulated"]


class EvaluateConfig(_Table):
    """When the model is measured."""

    every: Count
    clients: bool


class NodesConfig(_Table):
    """How long the server waits for its nodes; seconds."""

    timeout: Positive
    reply_timeout: Positive


class OutputConfig(_Table):
    """Where results go."""

    dir: str


class RunConfig(_Table):
    """The whole run config."""

    app: Literal["fairfal"]
    seed: Annotated[int, Field(ge=0, lt=2**63)]
    data: DataConfig
    model: ModelConfig
    train: TrainConfig
    strategy: StrategyConfig
    query: QueryConfig
    oracle: OracleConfig
    evaluate: EvaluateConfig
    nodes: NodesConfig
    output: OutputConfig

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
    path = Path(__file__).parent.parent / "pyproject.toml"
    with path.open("rb") as file:
        return flatten(tomllib.load(file)["tool"]["flwr"]["app"]["config"])
