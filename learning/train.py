"""Local training on the labelled images of one client."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from learning.errors import NonFiniteLossError
from learning.models import ImageClassifier
from learning.predict import Precision, autocast, predict
from learning.views import Normalisation, flip, normalise

# A local-only model is done when it fits its images this well (FairFAL, arXiv 2603.10341).
_FITTED = 0.99

LocalOnlySchedule = Literal["epochs", "steps"]
"""What the local-only model's decay counts: epochs, or mini-batches as FairFAL's published code does."""


@dataclass(frozen=True)
class TrainSettings:
    """How a client trains: mini-batch SGD with momentum and weight decay; FedProx with ``proximal_mu``."""

    epochs: int
    batch_size: int
    lr: float
    momentum: float
    weight_decay: float
    flip: bool
    precision: Precision
    proximal_mu: float = 0.0


@dataclass(frozen=True)
class TrainReport:
    """Mean cross-entropy over the images of the last epoch, without penalty terms, and SGD steps taken."""

    loss: float
    steps: int


@dataclass(frozen=True)
class LocalOnlyReport:
    """Epochs trained and the accuracy on the training images after the last of them."""

    epochs: int
    accuracy: float


def round_lr(
    base_lr: float, round_index: int, rounds: int, decay: float = 0.1, decay_at: float = 0.75
) -> float:
    """Return the learning rate of a round, counted from 0: ``decay`` of the base rate in the last rounds.

    The first round with the lower rate is floor(decay_at * rounds), so that 75 of 100 rounds have the base
    rate (FairFAL, arXiv 2603.10341).
    """
    # A product such as 0.29 * 100 may be a hair below the integer that it stands for.
    first_low = math.floor(decay_at * rounds + 1e-9)
    return base_lr * decay if round_index >= first_low else base_lr


def train_local(
    model: ImageClassifier,
    images: Tensor,
    labels: np.ndarray | Tensor,
    settings: TrainSettings,
    normalisation: Normalisation,
    generator: torch.Generator,
    device: torch.device,
) -> TrainReport:
    """Train the model in place for some epochs with a fresh optimiser.

    Each epoch visits every image once in a new order; the last batch may be smaller. With ``proximal_mu`` the
    objective is FedProx's (arXiv 1812.06127): cross-entropy + mu/2 ‖w - w_g‖², w_g the weights on arrival.
    The draws are the same on every device. With one CPU thread the result repeats bit by bit; with more, MKL
    may change the last bits unless its environment variable ``MKL_CBWR`` asks it not to.

    Parameters
    ----------
    model
        Moves to ``device`` and is in training mode on return.
    images, labels
        uint8 (N, C, H, W) and int64 (N,), N at least 1.
    generator
        On the CPU; gives the order and the flips.

    Raises
    ------
    NonFiniteLossError
        If a loss of an epoch was NaN or infinite, after that epoch; the weights are then of no use.
    ValueError
        If there are no images, or not as many labels as images.
    """
    training = _Training(model, images, labels, settings, normalisation, generator, device)
    loss = math.nan
    for _ in range(settings.epochs):
        loss = training.epoch(lambda _: settings.lr)
    return TrainReport(loss, training.steps)


def train_local_only(
    model: ImageClassifier,
    images: Tensor,
    labels: np.ndarray | Tensor,
    settings: TrainSettings,
    normalisation: Normalisation,
    generator: torch.Generator,
    device: torch.device,
    *,
    decay: float = 0.1,
    decay_at: float = 0.75,
    schedule: LocalOnlySchedule = "epochs",
) -> LocalOnlyReport:
    """Train the model in place until it fits the images: the local-only model of FairFAL (arXiv 2603.10341).

    At most ``settings.epochs`` epochs E. After each one the accuracy is measured in evaluation mode on the
    images as they are; 0.99 ends the training. There is no proximal term. Other parameters and errors are
    those of ``train_local``.

    Parameters
    ----------
    decay, decay_at
        The learning rate is ``decay`` times the base rate from epoch floor(decay_at * E) on, counted from 0.
    schedule
        "steps": from mini-batch floor(decay_at * E) of the whole training on, instead of that epoch.
    """
    plain = replace(settings, proximal_mu=0.0)
    training = _Training(model, images, labels, plain, normalisation, generator, device)
    report = LocalOnlyReport(0, math.nan)

    def lr_at(epoch: int, step: int) -> float:
        counted = epoch if schedule == "epochs" else step
        return round_lr(settings.lr, counted, settings.epochs, decay, decay_at)

    for epoch in range(settings.epochs):
        training.epoch(partial(lr_at, epoch))
        predictions = predict(model, training.images, normalisation, device, settings.precision)
        correct = predictions.probabilities.argmax(axis=1) == training.labels.cpu().numpy()
        report = LocalOnlyReport(epoch + 1, float(correct.mean()))
        if report.accuracy >= _FITTED:
            break
    return report


class _Training:
    """A model, the images on the device, and an optimiser that lives as long as this object."""

    def __init__(
        self,
        model: ImageClassifier,
        images: Tensor,
        labels: np.ndarray | Tensor,
        settings: TrainSettings,
        normalisation: Normalisation,
        generator: torch.Generator,
        device: torch.device,
    ) -> None:
        if len(images) == 0 or len(images) != len(labels):
            raise ValueError(
                f"training needs images and as many labels, got {len(images)} images, {len(labels)} labels"
            )
        self.model = model.to(device).to(memory_format=torch.channels_last)
        self.images = images.to(device)
        self.labels = torch.as_tensor(labels, dtype=torch.int64).to(device)
        self.settings = settings
        self.normalisation = normalisation
        self.generator = generator
        self.device = device
        self.steps = 0
        self.epochs = 0
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.arrived = [parameter.detach().clone() for parameter in self.parameters if settings.proximal_mu]
        self.optimiser = torch.optim.SGD(
            self.parameters,
            lr=settings.lr,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
            fused=True,
        )

    def epoch(self, lr: Callable[[int], float]) -> float:
        """Visit every image once in a new order; return the mean cross-entropy over the images.

        ``lr`` gives the learning rate of a step, counted from 0 over all epochs.
        """
        self.model.train()
        count = len(self.images)
        order = torch.randperm(count, generator=self.generator).to(self.device)
        flipped = None
        if self.settings.flip:
            flipped = (torch.rand(count, generator=self.generator) < 0.5).to(self.device)
        batches = order.split(self.settings.batch_size)
        # A loss stays on the device until the epoch is over: to read it would mean to wait for it.
        steps = [self._step(ids, flipped, lr(self.steps + place)) for place, ids in enumerate(batches)]
        losses = torch.stack(steps).double().cpu()
        finite = torch.isfinite(losses)
        if not finite.all():
            batch = int(torch.nonzero(~finite)[0])
            raise NonFiniteLossError(lr(self.steps + batch), self.epochs, batch)
        self.epochs += 1
        self.steps += len(batches)
        sizes = torch.tensor([len(ids) for ids in batches])
        return float((losses * sizes).sum() / count)

    def _step(self, ids: Tensor, flipped: Tensor | None, lr: float) -> Tensor:
        """Take one step on the images of these ids; return their mean cross-entropy before it."""
        batch = self.images[ids]
        if flipped is not None:
            batch = flip(batch, flipped[ids])
        inputs = normalise(batch, self.normalisation)
        with autocast(self.device, self.settings.precision):
            logits = self.model(inputs)
        loss = F.cross_entropy(logits.float(), self.labels[ids])
        self.optimiser.zero_grad()
        loss.backward()
        self._pull_back()
        for group in self.optimiser.param_groups:
            group["lr"] = lr
        self.optimiser.step()
        return loss.detach()

    def _pull_back(self) -> None:
        """Add mu (w - w_g), the gradient of the proximal term; nothing with mu = 0."""
        for parameter, arrived in zip(self.parameters, self.arrived, strict=False):
            if parameter.grad is not None:
                parameter.grad.add_(parameter.detach() - arrived, alpha=self.settings.proximal_mu)
