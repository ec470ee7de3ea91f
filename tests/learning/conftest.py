"""Small models, images and settings for the tests of the learning package."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch import nn

from learning.models import ImageClassifier, build_model
from learning.train import TrainSettings
from learning.views import Normalisation


class PixelClassifier(ImageClassifier):
    """Softmax regression on images of one pixel: one feature, two classes."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(1, 2)
        with torch.no_grad():
            self.head.weight.copy_(torch.tensor([[0.5], [-0.25]]))
            self.head.bias.copy_(torch.tensor([0.1, 0.0]))

    def embed(self, images: torch.Tensor) -> torch.Tensor:
        return images.flatten(1)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Compute as a Ray actor with one CPU does; then a result repeats bit by bit."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def cpu() -> torch.device:
    return torch.device("cpu")


@pytest.fixture
def grey() -> Normalisation:
    return Normalisation((0.25,), (0.5,))


@pytest.fixture
def pixel_classifier() -> PixelClassifier:
    return PixelClassifier()


@pytest.fixture
def make_model() -> Callable[..., ImageClassifier]:
    def make(size: int = 8, channels: int = 1, classes: int = 3, seed: int = 0) -> ImageClassifier:
        return build_model("cnn4", channels, size, classes, torch.Generator().manual_seed(seed))

    return make


@pytest.fixture
def make_images() -> Callable[..., tuple[torch.Tensor, np.ndarray]]:
    """Images whose brightness tells the class, with noise."""

    def make(
        count: int, size: int = 8, channels: int = 1, classes: int = 3
    ) -> tuple[torch.Tensor, np.ndarray]:
        rng = np.random.default_rng(5)
        labels = np.arange(count) % classes
        level = labels.reshape(-1, 1, 1, 1) * (200 / classes)
        images = level + rng.integers(0, 50, (count, channels, size, size))
        return torch.from_numpy(images.astype(np.uint8)), labels

    return make


@pytest.fixture
def make_settings() -> Callable[..., TrainSettings]:
    def make(**changes: object) -> TrainSettings:
        values: dict[str, object] = {
            "epochs": 2,
            "batch_size": 8,
            "lr": 0.05,
            "momentum": 0.9,
            "weight_decay": 1e-5,
            "flip": False,
            "precision": "fp32",
        }
        return TrainSettings(**(values | changes))

    return make
