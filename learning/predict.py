"""Probabilities and features of images in one pass."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from learning.models import ImageClassifier
from learning.views import Normalisation, normalise

Precision = Literal["fp32", "bf16"]


@dataclass(frozen=True)
class Predictions:
    """Softmax probabilities, float64 (N, classes), and penultimate features, float32 (N, D), of N images."""

    probabilities: np.ndarray
    features: np.ndarray


def autocast(device: torch.device, precision: Precision) -> torch.autocast:
    """Return the context in which a forward pass runs: bfloat16 keeps float32 weights and reductions."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")


def predict(
    model: ImageClassifier,
    images: Tensor,
    normalisation: Normalisation,
    device: torch.device,
    precision: Precision = "fp32",
    batch_size: int | None = None,
) -> Predictions:
    """Return probabilities and features of images without augmentation, with the model in evaluation mode.

    On a CPU each batch is the work of one thread, so that threads never wait for each other and the result
    does not depend on their number.

    Parameters
    ----------
    model
        Moves to ``device``; every training flag is as before on return.
    images
        uint8, (N, C, H, W); N may be 0.
    batch_size
        Images in one forward pass; it does not change the result beyond rounding. None takes what suits the
        device: on a CPU so few that their maps stay in the cache.
    """
    model.to(device).to(memory_format=torch.channels_last)
    on_cpu = device.type == "cpu"
    if batch_size is None:
        batch_size = 64 if on_cpu else 512

    def forward(batch: Tensor) -> tuple[Tensor, Tensor]:
        with torch.inference_mode(), autocast(device, precision):  # both hold for the calling thread alone
            embedded = model.embed(normalise(batch.to(device), normalisation))
            logits = model.head(embedded).float()
            return torch.softmax(logits, dim=1, dtype=torch.float64), embedded.float()

    batches = images.split(batch_size) if len(images) else ()
    with _evaluation(model):
        parts = _by_threads(forward, batches) if on_cpu else [forward(batch) for batch in batches]
    nothing = torch.empty(0, model.head.out_features, dtype=torch.float64), torch.empty(0, model.feature_size)
    probabilities, features = (
        torch.cat(column).cpu().numpy() for column in zip(*(parts or [nothing]), strict=True)
    )
    return Predictions(probabilities, features)


def _by_threads(
    work: Callable[[Tensor], tuple[Tensor, Tensor]], batches: Sequence[Tensor]
) -> list[tuple[Tensor, Tensor]]:
    """Return ``work`` of every batch, done by as many threads as PyTorch has, each using no other."""
    threads = torch.get_num_threads()
    if threads == 1:
        return [work(batch) for batch in batches]
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(work, batches))
    finally:
        torch.set_num_threads(threads)


@contextmanager
def _evaluation(model: nn.Module) -> Iterator[None]:
    """Put the model into evaluation mode and back; its parts may have had different modes."""
    flags = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in flags:
            module.training = training
