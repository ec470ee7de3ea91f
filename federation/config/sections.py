"""The tables of the run config: their keys, types and ranges, and what must hold within one table.

The defaults stand in ``pyproject.toml`` and nowhere else, so the models have none.
"""

from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

from datasets.budget import most_label_rounds

DatasetName = Literal[
    "digits",
    "fashion-mnist",
    "cifar10",
    "cifar100",
    "emnist-balanced",
    "emnist-letters",
    "octmnist",
    "dermamnist",
    "elpv",
    "ham10000",
    "isic2019",
    "image-folder",
]
SynchronousName = Literal["fedavg", "fedprox", "fedadam", "fedyogi"]
AsynchronousName = Literal["fedasync", "fedbuff", "fedraw", "ca2fl", "ace", "aced", "fedstaleweight"]
StrategyName = Literal[SynchronousName, AsynchronousName]
_EVERY_ARRIVAL = ("fedasync", "ace", "aced")
QueryName = Literal["fairfal", "random", "entropy", "margin", "least-confidence"]

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1, lt=2**63)]


class Table(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        alias_generator=lambda name: name.replace("_", "-"),
    )


class DataConfig(Table):
    """What the data is and how it lies at the clients."""

    name: DatasetName
    root: str
    clients: Count
    partition: Literal["dirichlet", "iid", "rare-holders", "shards", "natural"]
    alpha: Positive
    rare_labels: Annotated[str, Field(pattern=r"^\s*(\d+\s*(,\s*\d+\s*)*)?$")]
    rare_holders: Count
    shards_per_client: Count
    long_tail: Literal["exponential", "step", "none"]
    imbalance: Annotated[float, Field(ge=1)]
    image_size: Annotated[int, Field(ge=0, le=4096)]
    rgb: bool
    max_unreadable: Annotated[float, Field(ge=0, le=1)]
    seed: Annotated[int, Field(ge=-1, lt=2**63)]

    @model_validator(mode="after")
    def _holders(self) -> "DataConfig":
        if self.partition != "rare-holders":
            return self
        if not self.rare_label_ids:
            raise ValueError(
                "data.partition = 'rare-holders' needs data.rare-labels, the labels that few clients hold, "
                'such as "8,9"'
            )
        if self.rare_holders > self.clients:
            raise ValueError(
                f"data.rare-holders = {self.rare_holders} is more than data.clients = {self.clients}"
            )
        return self

    @property
    def rare_label_ids(self) -> tuple[int, ...]:
        """The numbers in ``rare_labels``, which is text since Flower's run config has no lists."""
        return tuple(int(label) for label in self.rare_labels.split(",") if label.strip())


class ModelConfig(Table):
    """The network."""

    name: Literal["cnn4"]


class TrainConfig(Table):
    """Local training (FairFAL, arXiv 2603.10341, experimental set-up)."""

    rounds: Count
    versions: Annotated[int, Field(ge=0)]
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


class StrategyConfig(Table):
    """How updates become a global model."""

    name: StrategyName
    participation: Annotated[float, Field(gt=0, le=1)]
    proximal_mu: NotNegative
    server_lr: NotNegative
    buffer_size: Count
    concurrency: Count
    weigh_by: Literal["uniform", "examples"]
    normalise: Literal["entries", "buffer", "weights"]
    staleness: Literal["default", "constant", "polynomial", "hinge"]
    staleness_exponent: NotNegative
    staleness_slope: NotNegative
    staleness_knee: NotNegative
    max_staleness: Annotated[int, Field(ge=-1)]
    mixing: Annotated[float, Field(gt=0, le=1)]
    keep: Literal["newest", "freshest", "mean", "off"]
    rarity: Literal["mean", "max"]
    rarity_weight: NotNegative
    label_source: Literal["metrics", "updates"]

    @property
    def asynchronous(self) -> bool:
        """Whether the strategy makes versions out of single arrivals, not rounds."""
        return self.name in get_args(AsynchronousName)

    @property
    def buffered(self) -> bool:
        """Whether the strategy is asynchronous and waits for ``buffer_size`` updates."""
        return self.asynchronous and self.name not in _EVERY_ARRIVAL

    @property
    def updates_per_version(self) -> int:
        """Updates that make a version of an asynchronous strategy."""
        return self.buffer_size if self.buffered else 1

    @model_validator(mode="after")
    def _steps(self) -> "StrategyConfig":
        if self.name == "fedasync" and self.server_lr not in (0.0, 1.0):
            raise ValueError(
                f"strategy.server-lr = {self.server_lr} is not allowed for fedasync, whose step is "
                "strategy.mixing; leave it at 0.0"
            )
        return self


class ClockConfig(Table):
    """Which time passes in an asynchronous run, and how long jobs take in computed time."""

    name: Literal["virtual", "wall"]
    dispatch: Literal["available", "random"]
    timing_only: bool
    job_timeout: NotNegative
    delays: Literal["constant", "lognormal", "pareto", "from-list", "rare-slow"]
    seconds_per_example: Positive
    communication: NotNegative
    speed_sigma: NotNegative
    sigma: NotNegative
    pareto_shape: Positive
    slow_factor: Positive
    delays_file: str
    availability: Literal["always", "bernoulli", "trace"]
    probability: Annotated[float, Field(gt=0, le=1)]
    ask_again: Positive
    availability_file: str

    @model_validator(mode="after")
    def _files(self) -> "ClockConfig":
        if self.timing_only and self.name == "wall":
            raise ValueError(
                "clock.timing-only = true needs clock.name = 'virtual': real time passes by training only"
            )
        for key, chosen, file in (
            ("delays", self.delays == "from-list", self.delays_file),
            ("availability", self.availability == "trace", self.availability_file),
        ):
            if chosen and not Path(file).is_absolute():
                raise ValueError(
                    f"clock.{key} = {'from-list' if key == 'delays' else 'trace'!r} needs "
                    f"clock.{key}-file, the absolute path of a CSV file, not {file!r}"
                )
        return self


class QueryConfig(Table):
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
        return most_label_rounds(self.label_ratio, self.last_label_ratio)


class OracleConfig(Table):
    """Who answers a query."""

    name: Literal["simulated"]


class EvaluateConfig(Table):
    """When the model is measured."""

    every: Count
    clients: bool


class NodesConfig(Table):
    """How long the server waits for its nodes; seconds."""

    timeout: Positive
    reply_timeout: Positive


class OutputConfig(Table):
    """Where results go, the run that is to go on, and what else is written and said."""

    dir: str
    resume: str
    tensorboard: bool
    quiet: bool

    @model_validator(mode="after")
    def _one_folder(self) -> "OutputConfig":
        if self.dir and self.resume and Path(self.dir) != Path(self.resume):
            raise ValueError(
                f"output.dir = {self.dir!r} and output.resume = {self.resume!r} are two folders; a resumed "
                "run goes on in its own, so leave output.dir empty"
            )
        return self
