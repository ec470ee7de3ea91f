"""ELPV: solar cells in electroluminescence images, from the package `elpv-dataset` that brings them along."""

import os
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from datasets.base import DataCard, ImageDataset, ImageSplit, LoadOptions
from datasets.errors import DatasetFormatError, DatasetNotFoundError
from datasets.labels import unify_labels
from datasets.randomness import generator
from datasets.unify import resize

CARD = DataCard(
    name="elpv",
    title="ELPV solar cells",
    source="Deitsch et al. (doi 10.1016/j.solener.2019.02.067), https://github.com/zae-bayern/elpv-dataset",
    licence="CC BY-NC-SA 4.0",
    # An expert's verdict and whether they were sure of it.
    class_names=("functional", "functional, unsure", "defective, unsure", "defective"),
    mean=(0.596,),
    std=(0.155,),
)

IMAGE_SIZE = 64
"""Side in pixels unless ``image_size`` says otherwise; published are 300x300."""

TEST_SHARE = 0.2
_LABELS = "labels.csv"
_GET_IT = (
    "Install its package (`pip install elpv-dataset`, or this project with `[elpv]`), which brings the "
    "images along; data.root is only needed for another copy of them: the folder that holds "
    f"{_LABELS} and images."
)
_GET_IT_AGAIN = f"Get the data set again. {_GET_IT}"
_STEPS = 3  # the probabilities of a defect are thirds
_TOLERANCE = 0.01


def load(options: LoadOptions) -> ImageDataset:
    """Return solar cells in four classes with a stratified test split of 20 % that the seed alone decides.

    Neighbouring cells of a solar module may be in both splits: the data set does not say which module a cell
    belongs to.

    Raises
    ------
    DatasetNotFoundError
        If the package is not installed, or the root lacks the files.
    DatasetFormatError
        If a file is damaged.
    """
    # Imported here because it takes a second that the other data sets need not pay.
    from sklearn.model_selection import train_test_split

    path = _labels_file(options.root)
    images, labels = _read(path, options.image_size or IMAGE_SIZE)
    split_seed = int(generator(options.seed, "elpv test split").integers(2**31))
    try:
        train_ids, test_ids = train_test_split(
            np.arange(len(labels)), test_size=TEST_SHARE, stratify=labels, random_state=split_seed
        )
    except ValueError as error:
        raise DatasetFormatError(
            f"{path}: found too few images for a test split ({error}). {_GET_IT_AGAIN}"
        ) from error
    return ImageDataset(
        card=CARD,
        train=ImageSplit(images[torch.from_numpy(train_ids)], labels[train_ids]),
        test=ImageSplit(images[torch.from_numpy(test_ids)], labels[test_ids]),
    )


def _labels_file(root: Path | None) -> Path:
    """Return the file of labels, beside which the images lie."""
    try:
        import elpv_dataset
    except ModuleNotFoundError:
        raise DatasetNotFoundError(
            f"{CARD.title} was not found: the package elpv-dataset is not installed. {_GET_IT}"
        ) from None
    folder = root if root is not None else Path(next(iter(elpv_dataset.__path__))) / "data"
    if not os.path.isfile(folder / _LABELS):
        raise DatasetNotFoundError(
            f"{CARD.title} was not found. Looked in\n  {folder}: lacks {_LABELS}\n{_GET_IT}"
        )
    return folder / _LABELS


@lru_cache(maxsize=1)
def _read(path: Path, size: int) -> tuple[torch.Tensor, npt.NDArray[np.int64]]:
    """Return all images, uint8 (N, 1, size, size), and labels, (N,); a process decodes them once."""
    from elpv_dataset.utils import load_dataset

    try:
        pixels, probabilities, _ = load_dataset(str(path))
    except (OSError, SyntaxError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise DatasetFormatError(
            f"{path}: found unreadable labels or images ({reason}), expected lines such as "
            f"'images/cell0001.png 1.0 mono' and images of one size. {_GET_IT_AGAIN}"
        ) from error
    if pixels.dtype != np.uint8 or pixels.ndim != 3:
        raise DatasetFormatError(
            f"{path}: found images of type {pixels.dtype} and shape {pixels.shape[1:]}, expected 8-bit "
            f"grayscale. {_GET_IT_AGAIN}"
        )
    thirds = probabilities * _STEPS
    classes = np.where(np.abs(thirds - np.round(thirds)) < _TOLERANCE, np.round(thirds), thirds)
    labels = unify_labels(classes, str(path), CARD.class_names, way_out=_GET_IT_AGAIN, first_line=1).values
    return resize(torch.from_numpy(pixels).unsqueeze(1), size), labels
