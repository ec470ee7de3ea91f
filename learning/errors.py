"""Errors of the learning package."""

from datasets.errors import RareflError


class LearningError(RareflError):
    """Base of the errors that a model, its weights or its training can cause."""


class UnknownModelError(LearningError):
    """The name stands for no model in the table."""


class ModelLayerError(LearningError):
    """A layer's values cannot come from the run's seed alone, or would not travel with the model's state."""


class NonFiniteLossError(LearningError):
    """The loss became NaN or infinite; ``epoch`` and ``batch`` count from 0."""

    def __init__(self, lr: float, epoch: int, batch: int) -> None:
        super().__init__(
            f"the training loss is not finite at epoch {epoch}, batch {batch} (both counted from 0), with "
            f"learning rate {lr:g}; lower the learning rate, or use precision fp32 if it was bf16"
        )
        self.lr = lr
        self.epoch = epoch
        self.batch = batch


class ArrayMismatchError(LearningError):
    """Arrays do not fit the model: a key is missing or unknown, or a shape or a type is wrong."""
