"""ELPV: solar cells in electroluminescence images, from the package `elpv-dataset` that brings them along."""

import os
from pathlib import Path

import numpy as np
import pandas as pd

from datasets.base import ImageDataset, LoadOptions
from datasets.errors import DatasetFormatError, DatasetNotFoundError
from datasets.images.image_files import Description, LabelledFiles, read_image_files
from datasets.sources.csv_files import require_distinct
from datasets.sources.labels import unify_labels

DESCRIPTION = Description(
    name="elpv",
    title="ELPV solar cells",
    source="Deitsch et al. (doi 10.1016/j.solener.2019.02.067), https://github.com/zae-bayern/elpv-dataset",
    licence="CC BY-NC-SA 4.0",
)
CLASS_NAMES = ("functional", "functional, unsure", "defective, unsure", "defective")
"""An expert's verdict on a cell and whether they were sure of it."""

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
    """Return solar cells in four classes with a test split of 20 % of each, which the seed alone decides.

    Neighbouring cells of a solar module may be in both splits: the data set does not say which module a cell
    belongs to.

    Raises
    ------
    DatasetNotFoundError
        If the package is not installed, or the root lacks the table of labels.
    DatasetFormatError
        If the table is damaged, or too many images are.
    ImageCacheError
        If the decoded images cannot be kept.
    """
    path = _labels_file(options.root)
    table = _read_table(path)
    thirds = table["probability"].to_numpy() * _STEPS
    classes = np.where(np.abs(thirds - np.round(thirds)) < _TOLERANCE, np.round(thirds), thirds)
    labels = unify_labels(classes, str(path), CLASS_NAMES, way_out=_GET_IT_AGAIN, first_line=1).values
    files = LabelledFiles(path.parent, CLASS_NAMES, table["file"].tolist(), labels.tolist())
    return read_image_files(DESCRIPTION, files, options)


def _labels_file(root: Path | None) -> Path:
    """Return the file of labels, beside which the images lie."""
    if root is None:
        try:
            import elpv_dataset
        except ModuleNotFoundError:
            raise DatasetNotFoundError(
                f"{DESCRIPTION.title} was not found: the package elpv-dataset is not installed. {_GET_IT}"
            ) from None
        root = Path(next(iter(elpv_dataset.__path__))) / "data"
    if not os.path.isfile(root / _LABELS):
        raise DatasetNotFoundError(
            f"{DESCRIPTION.title} was not found. Looked in\n  {root}: lacks {_LABELS}\n{_GET_IT}"
        )
    return root / _LABELS


def _read_table(path: Path) -> pd.DataFrame:
    """Return the columns file and probability; a probability that is no number is NaN."""
    try:
        table = pd.read_csv(
            path, sep=r"\s+", header=None, names=["file", "probability", "type"], dtype=str, index_col=False
        )
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise DatasetFormatError(
            f"{path}: found no table of labels ({reason}), expected lines such as "
            f"'images/cell0001.png 1.0 mono'. {_GET_IT_AGAIN}"
        ) from error
    table.index += 1  # lines of the file
    require_distinct(path, table, "file")
    table["probability"] = pd.to_numeric(table["probability"], errors="coerce")
    return table
