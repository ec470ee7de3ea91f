"""Probabilities and features of images in one pass."""

from collections.abc import Iterator
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

    Parameters
    ----------
    model
        Moves to ``device``; every training flag is as before on return.
    images
        uint8, (N, C, H, W); N may be 0.
    batch_size
        Images in one forward pass; it does not change the result beyond rounding. None takes what suits the
        device: for a single CPU thread so few that their maps stay in the cache, otherwise so many that
        threads seldom wait for each other.
    """
    model.to(device).to(memory_format=torch.channels_last)
    if batch_size is None:
        batch_size = 64 if device.type == "cpu" and torch.get_num_threads() == 1 else 512
    probabilities = [torch.empty(0, model.head.out_features, dtype=torch.float64, device=device)]
    features = [torch.empty(0, model.feature_size, device=device)]
    with torch.inference_mode(), _evaluation(model), autocast(device, precision):
        for batch in images.split(batch_size) if len(images) else ():
            embedded = model.embed(normalise(batch.to(device), normalisation))
            logits = model.head(embedded).float()
            probabilities.append(torch.softmax(logits, dim=1, dtype=torch.float64))
            features.append(embedded.float())
        return Predictions(torch.cat(probabilities).cpu().numpy(), torch.cat(features).cpu().numpy())


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
