"""What a data set is: a card, and a training and a test split held in memory as 8-bit images."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch


@dataclass(frozen=True)
class DataCard:
    """What one should know about a data set before using it.

    ``mean`` and ``std`` hold one value per channel, of pixel values in [0, 1].
    """

    name: str
    title: str
    source: str
    licence: str
    class_names: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class ImageSplit:
    """Images, uint8 (N, C, H, W), with their labels, int64 (N,). Both are shared and never written to."""

    images: torch.Tensor
    labels: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        assert self.images.dtype == torch.uint8, self.images.dtype
        assert self.images.ndim == 4, tuple(self.images.shape)
        assert self.labels.dtype == np.int64, self.labels.dtype
        assert self.labels.shape == (len(self.images),), self.labels.shape

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class ImageDataset:
    """A data set as it was published, before any long tail or partition."""

    card: DataCard
    train: ImageSplit
    test: ImageSplit

    @property
    def num_classes(self) -> int:
        """Return the number of classes; labels are 0 to one less than it."""
        return len(self.card.class_names)
