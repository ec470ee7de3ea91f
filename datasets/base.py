"""What a data set is: a card, and a training and a test split held in memory as 8-bit images."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch


@dataclass(frozen=True)
class LoadOptions:
    """How a data set is read; equal options give equal images in every process.

    Attributes
    ----------
    root
        Folder of the data set; ``None`` looks in the standard places.
    seed
        Decides a test split that is drawn, where none is published.
    image_size
        Side in pixels to which images are brought; 0 keeps the data set's own.
    rgb
        Whether grayscale images are given three equal channels.
    max_unreadable
        Largest share of the images, in [0, 1], that may be damaged and left out.
    """

    root: Path | None = None
    seed: int = 0
    image_size: int = 0
    rgb: bool = False
    max_unreadable: float = 0.01


@dataclass(frozen=True)
class DataCard:
    """What one should know about a data set before using it.

    ``mean`` and ``std`` hold one value per channel, of pixel values in [0, 1]. ``long_tail`` holds the mean
    and the deviation published for a long tail of the data set, where those are others.
    """

    name: str
    title: str
    source: str
    licence: str
    class_names: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    long_tail: tuple[tuple[float, ...], tuple[float, ...]] | None = None

    def for_profile(self, profile: str) -> "DataCard":
        """Return the card with the mean and deviation for a long tail of that profile; "none" has none."""
        if profile == "none" or self.long_tail is None:
            return self
        mean, std = self.long_tail
        return replace(self, mean=mean, std=std, long_tail=None)


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
class Sites:
    """Where each image was made: the clients of a natural federation.

    ``train`` and ``test`` hold the position of each image's site in ``names``, int64 (N,) and (M,).
    """

    names: tuple[str, ...]
    train: npt.NDArray[np.int64]
    test: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Copies:
    """How many images are there more than once, pixel by pixel.

    Attributes
    ----------
    contradictory
        Left out: the same image has another label as well.
    in_test
        Left out of the training split: the same image is in the published test split.
    kept
        In a split beside the same image with the same label.
    """

    contradictory: int = 0
    in_test: int = 0
    kept: int = 0


@dataclass(frozen=True, eq=False)
class ImageDataset:
    """A data set as it was published, before any long tail or partition.

    Attributes
    ----------
    sites
        Where the images come from, if the data set says so.
    train_groups
        Training images of the same number show the same thing, such as one skin lesion, and stay at one
        client, int64 (N,); ``None`` where all are independent. No such group is in the test split, too.
    left_out
        Damaged images, and copies, that are in no split: for each its file and what is wrong with it.
    copies
        What was found of copies; None where nobody looked.
    """

    card: DataCard
    train: ImageSplit
    test: ImageSplit
    sites: Sites | None = None
    train_groups: npt.NDArray[np.int64] | None = None
    left_out: tuple[str, ...] = ()
    copies: Copies | None = None

    @property
    def num_classes(self) -> int:
        """Return the number of classes; labels are 0 to one less than it."""
        return len(self.card.class_names)
