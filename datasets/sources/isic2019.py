"""The training images of the ISIC 2019 challenge: skin lesions from six centres."""

from pathlib import Path

import numpy as np
import pandas as pd

from datasets.base import ImageDataset, LoadOptions
from datasets.errors import DatasetFormatError, DatasetNotFoundError
from datasets.images.image_files import Description, LabelledFiles, read_image_files, standard_place
from datasets.sources import ham10000
from datasets.sources.csv_files import find_table, read_table, require_distinct

NAME = "isic2019"
DESCRIPTION = Description(
    name=NAME,
    title="ISIC 2019: dermatoscopic images of skin lesions, training part",
    source="ISIC 2019 challenge, https://challenge.isic-archive.com/data/#2019 (HAM10000, BCN20000, MSK)",
    licence="CC BY-NC 4.0",
)
CLASS_NAMES = ("MEL", "NV", "BCC", "AK", "BKL", "DF", "VASC", "SCC")
NO_CLASS = "UNK"
TRUTH, METADATA = "ISIC_2019_Training_GroundTruth.csv", "ISIC_2019_Training_Metadata.csv"

_LAYOUT = (
    f"Set data.root to a folder that holds {TRUTH}, {METADATA} and the folder ISIC_2019_Training_Input with "
    "the images ISIC_0000000.jpg ..."
)


def load(options: LoadOptions) -> ImageDataset:
    """Return the training images of ISIC 2019 with a test split of 20 % that parts no lesion.

    The published metadata name no centre. As FLamby (arXiv 2210.04620) does, it is derived from
    ``lesion_id``: "BCN..." is BCN, "MSK..." is MSK, "HAM..." is HAM_ with the column ``dataset`` of
    HAM10000's metadata if these lie in the same folder, else all such images are one site, HAM. FLamby drops
    the images without a lesion (2,084 of 25,331). Here they stay, each a group of its own, at a site called
    "unknown": a natural federation has seven clients.

    UNK is no class: rows of it are left out and named, as are rows without an image file.

    Raises
    ------
    DatasetNotFoundError
        If a table or the images are not found.
    DatasetFormatError
        If a table lacks a column, or a row of it is wrong; or too many images are damaged or missing.
    """
    root = options.root or standard_place(NAME)
    truth_path, metadata_path = (find_table(root, name) for name in (TRUTH, METADATA))
    if truth_path is None or metadata_path is None:
        missing = [name for name, path in ((TRUTH, truth_path), (METADATA, metadata_path)) if path is None]
        raise DatasetNotFoundError(f"{root}: {' and '.join(missing)} not found. {_LAYOUT}")
    truth = read_table(truth_path, ("image", *CLASS_NAMES))
    require_distinct(truth_path, truth, "image")
    truth = truth.assign(label=_labels(truth_path, truth))
    metadata = read_table(metadata_path, ("image", "lesion_id"))
    require_distinct(metadata_path, metadata, "image")
    truth["lesion"] = truth["image"].map(metadata.set_index("image")["lesion_id"])
    if (unnamed := truth["lesion"].isna()).any():
        raise DatasetFormatError(
            f"{metadata_path}: lacks {int(unnamed.sum())} of the images of {truth_path.name}, such as "
            f"{truth['image'][unnamed].iloc[0]} of its line {truth.index[unnamed][0]}. Get both tables again."
        )
    unknown = truth["label"] == len(CLASS_NAMES)
    there, left_out = ham10000.rows_with_images(truth_path, truth[~unknown], "image", root, _LAYOUT)
    of_no_class = tuple(
        f"{truth_path}, line {line}: {image} is {NO_CLASS}, which is no class"
        for line, image in truth["image"][unknown].items()
    )
    return read_image_files(
        DESCRIPTION,
        LabelledFiles(
            root=root,
            class_names=CLASS_NAMES,
            names=there["file"].tolist(),
            labels=there["label"].tolist(),
            sites=_centres(there["image"], there["lesion"], root),
            groups=there["lesion"].tolist(),
            left_out=(*of_no_class, *left_out),
        ),
        options,
    )


def _labels(path: Path, truth: pd.DataFrame) -> np.ndarray:
    """Return the label of each row, with ``UNK`` after the last class, (N,)."""
    columns = [*CLASS_NAMES, *([NO_CLASS] if NO_CLASS in truth else [])]
    values = truth[columns].apply(pd.to_numeric, errors="coerce").to_numpy(dtype=float)
    wrong = ~(np.isin(values, (0.0, 1.0)).all(axis=1) & (values.sum(axis=1) == 1))
    if wrong.any():
        row = int(wrong.argmax())
        raise DatasetFormatError(
            f"{path}, line {truth.index[row]}: {', '.join(columns)} are "
            f"{', '.join(truth[columns].iloc[row])}; "
            "exactly one must be 1 and the others 0."
        )
    return values.argmax(axis=1)


def _centres(images: pd.Series, lesions: pd.Series, root: Path) -> list[str]:
    path = find_table(root, *ham10000.METADATA)
    sources: dict[str, str] = {}
    if path is not None:
        ham = read_table(path, ("image_id", "dataset"))
        sources = dict(zip(ham["image_id"], ham["dataset"], strict=True))

    def centre(image: str, lesion: str) -> str:
        if lesion.startswith("HAM"):
            return f"HAM_{sources[image]}" if sources.get(image) else "HAM"
        return next((name for name in ("BCN", "MSK") if lesion.startswith(name)), ham10000.UNKNOWN_SITE)

    return [centre(image, lesion) for image, lesion in zip(images, lesions, strict=True)]
