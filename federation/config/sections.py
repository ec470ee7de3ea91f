"""The tables of the run config: their keys, types and ranges, and what must hold within one table."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from datasets.partitions.long_tail import PROFILES
from datasets.partitions.partition import LEAST_ALPHA, MOST_ALPHA, PARTITIONS
from datasets.registry import DATASETS
from federation.config.fields import LARGEST_INTEGER, Because, Count, NotNegative, OneOf, Positive, Table
from learning.models import MODELS

_ALPHAS = (
    "beyond that clients hold one label each, which is data.partition = 'shards' with "
    "data.shards-per-client = 1, or are all alike, which is 'iid'"
)


class DataConfig(Table):
    """What the data is and how it lies at the clients."""

    name: Annotated[str, OneOf(DATASETS)]
    root: str
    clients: Count
    partition: Annotated[str, OneOf(PARTITIONS)]
    alpha: Annotated[float, Field(ge=LEAST_ALPHA, le=MOST_ALPHA), Because(_ALPHAS)]
    rare_labels: Annotated[str, Field(pattern=r"^\s*(\d+\s*(,\s*\d+\s*)*)?$")]
    rare_holders: Count
    shards_per_client: Count
    long_tail: Annotated[str, OneOf(PROFILES)]
    imbalance: Annotated[float, Field(ge=1)]
    image_size: Annotated[int, Field(ge=0, le=4096)]
    rgb: bool
    max_unreadable: Annotated[float, Field(ge=0, le=1)]
    seed: Annotated[int, Field(ge=-1, le=LARGEST_INTEGER)]

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

    name: Annotated[str, OneOf(MODELS)]


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
    local_only_schedule: Literal["epochs", "steps"]


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
