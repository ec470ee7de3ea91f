"""About how long a run takes and how much memory: what it has to compute, times what that takes here.

That is measured: a few SGD steps of the run's network at its batch size, and a few images through it.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import psutil
import torch

from datasets.budget import budget_per_client, label_rounds
from datasets.federated import FederatedData
from datasets.randomness import torch_generator
from fairfal_app.config import FairFALConfig
from fairfal_app.options import needs_local_model
from federation.client import initial_model, train_settings
from federation.measures import LAST
from learning.device import device_name, pick_device
from learning.predict import predict
from learning.train import train_local
from learning.views import Normalisation

ENGINE_BYTES = 10**9
"""What Flower's and Ray's own processes take, and libraries that all share (measured, on Linux)."""

_STEPS = 10
_IMAGES = 256
_TIMED_LR = 1e-3  # a step takes as long at any rate, and a loss that is not finite would end it


@dataclass(frozen=True)
class Work:
    """What a run computes.

    Attributes
    ----------
    steps
        SGD steps of all clients.
    images
        Images that clients put through a network without training.
    longest_steps, longest_images
        The same along the longest way through the run, on which a round waits for the client with most.
    evaluated
        Images that the server puts through the network.
    """

    steps: float
    images: float
    longest_steps: float
    longest_images: float
    evaluated: int


@dataclass(frozen=True)
class Speed:
    """What one worker takes: seconds of an SGD step and of an image, bytes of its own memory; and where."""

    step: float
    image: float
    memory: int
    device: str


def work_of(config: FairFALConfig, data: FederatedData) -> Work:
    """Return what a run computes; local-only trainings, which may end early, count in full."""
    pools = np.array([len(pool) for pool in data.pools])
    trainings = [pools]
    work = np.zeros(4)
    if config.queries:
        query = config.query
        rounds = label_rounds(query.label_ratio, query.last_label_ratio, pools.tolist())
        budget = budget_per_client(query.label_ratio, len(data.train_ids), len(pools))
        trainings = [np.minimum(pools, budget * label_round) for label_round in range(1, rounds + 1)]
        for labelled in trainings[:-1]:
            work += _query(config, pools, labelled)
    for labelled in trainings:
        work += _training(config, labelled)
    last = LAST if config.queries else 1
    evaluations = config.steps // config.evaluate.every + min(last, config.steps)
    steps, images, longest_steps, longest_images = work.tolist()
    evaluated = len(trainings) * evaluations * len(data.test)
    return Work(steps, images, longest_steps, longest_images, evaluated)


def _training(config: FairFALConfig, labelled: np.ndarray) -> np.ndarray:
    """Return steps and images, of all clients and of the longest way, of one training."""
    steps = config.train.local_epochs * np.ceil(labelled / config.train.batch_size)
    if config.strategy.asynchronous:
        updates = config.steps * config.strategy.updates_per_version
        return np.array([updates * steps.mean(), 0, 0, 0])
    rounds = config.steps
    return np.array([rounds * config.strategy.participation * steps.sum(), 0, rounds * steps.max(), 0])


def _query(config: FairFALConfig, pools: np.ndarray, labelled: np.ndarray) -> np.ndarray:
    """Return the same of one query."""
    if not config.query.chosen.needs_predictions:
        return np.zeros(4)
    steps, images = np.zeros_like(pools), pools - labelled
    if needs_local_model(config.query):
        epochs = config.train.local_only_epochs
        steps = epochs * np.ceil(labelled / config.train.batch_size)
        images = epochs * labelled + 2 * pools
    return np.array([steps.sum(), images.sum(), steps.max(), images.max()])


def measure(config: FairFALConfig, data: FederatedData) -> Speed:
    """Return what a worker takes, measured in some seconds with one thread, as many as a worker has."""
    device = pick_device()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        model = initial_model(config, data, label_round=0)
        normalisation = Normalisation(data.card.mean, data.card.std)
        count = _STEPS * config.train.batch_size
        ids = torch.from_numpy(np.resize(data.train_ids, count))
        images, labels = data.train.images[ids], torch.from_numpy(data.train.labels)[ids]
        settings = train_settings(config, min(config.train.lr, _TIMED_LR), epochs=1)

        def train(steps: int) -> None:
            some = slice(0, steps * config.train.batch_size)
            generator = torch_generator(config.seed, "estimate")
            train_local(model, images[some], labels[some], settings, normalisation, generator, device)

        train(1)  # the first step prepares memory and libraries
        step = _seconds(lambda: train(_STEPS)) / _STEPS
        some = images[: min(_IMAGES, count)]
        image = _seconds(lambda: predict(model, some, normalisation, device, config.train.precision))
        memory = psutil.Process().memory_full_info().uss
        return Speed(step, image / len(some), memory, device_name(device))
    finally:
        torch.set_num_threads(threads)


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def seconds_of(work: Work, speed: Speed, workers: int, gpus: int, cpus: int) -> float:
    """Return about how long the computing of a run takes.

    Workers on CPUs work side by side, and a round waits for its longest client; those that share a GPU are
    taken to wait for each other.
    """
    everything = work.steps * speed.step + work.images * speed.image
    if gpus:
        return everything / gpus + work.evaluated * speed.image
    longest = work.longest_steps * speed.step + work.longest_images * speed.image
    return max(everything / workers, longest) + work.evaluated * speed.image / cpus


def memory_of(speed: Speed, workers: int) -> int:
    """Return about how many bytes of main memory a run takes: the server and each worker hold the data."""
    return (workers + 1) * speed.memory + ENGINE_BYTES
