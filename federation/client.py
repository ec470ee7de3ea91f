"""What one client has at hand while it answers a message: its config, its images, its device."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict

from datasets.federated import DataSpec, FederatedData, federate
from datasets.randomness import torch_generator
from federation import records
from federation.config.run_config import RunConfig, parse_run_config
from federation.errors import ConfigError
from federation.runs.fingerprint import source_fingerprint
from fedraw.arrays import read_array
from fedraw.label_coverage import coverage_bits
from learning.arrays import load_arrays, to_arrays
from learning.device import device_name, pick_device
from learning.measure import measure
from learning.models import ImageClassifier, build_model, empty_model
from learning.predict import Predictions, predict
from learning.train import TrainSettings, round_lr, train_local
from learning.views import Normalisation


def data_spec(config: RunConfig) -> DataSpec:
    """Return what the run config says of the data."""
    data = config.data
    return DataSpec(
        name=data.name,
        root=data.root,
        clients=data.clients,
        partition=data.partition,
        alpha=data.alpha,
        long_tail=data.long_tail,
        imbalance=data.imbalance,
        seed=config.data_seed,
        rare_labels=data.rare_label_ids,
        rare_holders=data.rare_holders,
        image_size=data.image_size,
        rgb=data.rgb,
        max_unreadable=data.max_unreadable,
        shards_per_client=data.shards_per_client,
    )


def initial_model(config: RunConfig, data: FederatedData, label_round: int) -> ImageClassifier:
    """Return the fresh model with which a label round starts; the same on the server and at every client."""
    _, channels, height, _ = data.train.images.shape
    weights = torch_generator(config.seed, "initial weights", label_round)
    return build_model(config.model.name, channels, height, data.num_classes, weights)


def model_of(config: RunConfig, data: FederatedData, arrays: ArrayRecord) -> ImageClassifier:
    """Return the model that holds arrays which travelled; raises ArrayMismatchError."""
    _, channels, height, _ = data.train.images.shape
    model = empty_model(config.model.name, channels, height, data.num_classes)
    load_record(model, arrays)
    return model


def train_settings(config: RunConfig, lr: float, epochs: int, proximal_mu: float = 0.0) -> TrainSettings:
    """Return the settings of one local training."""
    train = config.train
    return TrainSettings(
        epochs=epochs,
        batch_size=train.batch_size,
        lr=lr,
        momentum=train.momentum,
        weight_decay=train.weight_decay,
        flip=train.flip,
        precision=train.precision,
        proximal_mu=proximal_mu,
    )


@dataclass(frozen=True)
class Client:
    """One client of the run; ``index`` is its place in the partition, ``site`` its name."""

    config: RunConfig
    data: FederatedData
    index: int
    site: str

    @classmethod
    def of(cls, context: Context, config: RunConfig | None = None) -> "Client":
        """Return the client that Flower's context describes; raises ConfigError on a wrong partition-id.

        ``config`` is the run config where that was parsed already.
        """
        config = parse_run_config(context.run_config) if config is None else config
        index = context.node_config.get("partition-id")
        if not isinstance(index, int) or not 0 <= index < config.data.clients:
            raise ConfigError(
                f"node config: partition-id = {index!r} is not allowed: it must be a whole number from 0 to "
                f"{config.data.clients - 1}, since data.clients = {config.data.clients}"
            )
        data = federate(data_spec(config))
        return cls(config, data, index, str(context.node_config.get("site", data.client_names[index])))

    @cached_property
    def device(self) -> torch.device:
        """The device on which this client computes."""
        return pick_device()

    @cached_property
    def normalisation(self) -> Normalisation:
        """The normalisation of the data set."""
        return Normalisation(self.data.card.mean, self.data.card.std)

    @property
    def pool(self) -> np.ndarray:
        """Ids of the images that this client holds, in pool order."""
        return self.data.pools[self.index]

    def images(self, ids: np.ndarray) -> torch.Tensor:
        """Return the images of ids, uint8 (N, C, H, W)."""
        return self.data.train.images[torch.from_numpy(ids)]

    def model(self, arrays: ArrayRecord) -> ImageClassifier:
        """Return a model that holds the arrays that the server sent."""
        return model_of(self.config, self.data, arrays)

    def predict(self, model: ImageClassifier, images: torch.Tensor) -> Predictions:
        """Return probabilities and features of images, without augmentation."""
        return predict(model, images, self.normalisation, self.device, self.config.train.precision)


def label_coverage(labels: np.ndarray, num_classes: int) -> list[int]:
    """Return for each label 1 if at least one example has it, else 0."""
    return coverage_bits(np.bincount(labels, minlength=num_classes))


def hello(message: Message, client: Client, labels: np.ndarray) -> Message:
    """Answer the server's hello: who this client is and what it holds."""
    digest, source = source_fingerprint()
    identity = ConfigRecord(
        {
            records.SITE: client.site,
            records.PARTITION: client.index,
            records.DEVICE: device_name(client.device),
            records.FINGERPRINT: digest,
            records.SOURCE: str(source),
        }
    )
    holdings = MetricRecord(
        {
            records.POOL_SIZE: len(client.pool),
            records.NUM_LABELLED: len(labels),
            records.LABEL_COVERAGE: label_coverage(labels, client.data.num_classes),
        }
    )
    return Message(RecordDict({records.CONFIG: identity, records.METRICS: holdings}), reply_to=message)


def train(message: Message, client: Client, ids: np.ndarray, labels: np.ndarray) -> Message:
    """Train the received model on the labelled images ``ids`` and answer with its arrays and metrics."""
    config = client.config
    request = message.content.config_records[records.CONFIG]
    label_round = int(request.get(records.LABEL_ROUND, 0))  # type: ignore[arg-type]
    server_round = int(request[records.SERVER_ROUND])  # type: ignore[arg-type]
    # In an asynchronous run a client can get the same version twice; its jobs draw apart.
    job = [int(request[records.JOB])] if records.JOB in request else []  # type: ignore[arg-type]
    schedule = config.train
    lr = round_lr(schedule.lr, server_round - 1, config.steps, schedule.lr_decay, schedule.lr_decay_at)
    proximal_mu = float(request.get(records.PROXIMAL_MU, 0.0))  # type: ignore[arg-type]
    model = client.model(message.content.array_records[records.ARRAYS])
    report = train_local(
        model,
        client.images(ids),
        torch.from_numpy(labels),
        train_settings(config, lr, schedule.local_epochs, proximal_mu),
        client.normalisation,
        torch_generator(config.seed, "local training", label_round, server_round, client.site, *job),
        client.device,
    )
    metrics = MetricRecord(
        {
            records.NUM_EXAMPLES: len(ids),
            records.TRAIN_LOSS: report.loss,
            records.LABEL_COVERAGE: label_coverage(labels, client.data.num_classes),
        }
    )
    content = RecordDict({records.ARRAYS: array_record(model), records.METRICS: metrics})
    return Message(content, reply_to=message)


def evaluate(message: Message, client: Client) -> Message:
    """Evaluate the received model on this client's part of the test images.

    A client without any answers with measures of 0 from 0 examples, which have no weight in an average.
    """
    test, ids = client.data.test, client.data.test_pools[client.index]
    model = client.model(message.content.array_records[records.ARRAYS])
    predictions = client.predict(model, test.images[torch.from_numpy(ids)])
    measures = measure(predictions.probabilities, test.labels[ids], client.data.rare_labels)
    metrics = MetricRecord(
        {
            records.NUM_EXAMPLES: len(ids),
            records.LOSS: measures.loss if len(ids) else 0.0,
            records.ACCURACY: measures.accuracy if len(ids) else 0.0,
        }
    )
    return Message(RecordDict({records.METRICS: metrics}), reply_to=message)


def load_record(model: ImageClassifier, arrays: ArrayRecord) -> None:
    """Load arrays that travelled into a model; raises ArrayMismatchError."""
    load_arrays(model, {key: read_array(array) for key, array in arrays.items()})


def array_record(model: ImageClassifier) -> ArrayRecord:
    """Return the model's arrays as Flower carries them."""
    return ArrayRecord({key: Array(array) for key, array in to_arrays(model).items()})
