"""HAM10000: skin lesions from four sources, several images of some lesions."""

from pathlib import Path

import pandas as pd

from datasets.base import ImageDataset, LoadOptions
from datasets.errors import DatasetFormatError, DatasetNotFoundError
from datasets.images.image_files import (
    Description,
    LabelledFiles,
    find_images,
    read_image_files,
    standard_place,
)
from datasets.sources.csv_files import find_table, read_table, require_distinct

NAME = "ham10000"
DESCRIPTION = Description(
    name=NAME,
    title="HAM10000: dermatoscopic images of pigmented skin lesions",
    source="Tschandl, Rosendahl and Kittler (doi 10.1038/sdata.2018.161), Dataverse doi 10.7910/DVN/DBW86T",
    licence="CC BY-NC 4.0",
)
CLASS_NAMES = ("akiec", "bcc", "bkl", "df", "mel", "nv", "vasc")
METADATA = ("HAM10000_metadata.csv", "HAM10000_metadata", "HAM10000_metadata.tab")
UNKNOWN_SITE = "unknown"

_FOLDERS_DEEP = 2  # an archive may hold the folder of images in a folder of the same name
_LAYOUT = (
    "Set data.root to a folder that holds HAM10000_metadata.csv (or without suffix, or .tab) and the images "
    "ISIC_0024306.jpg ..., in it or in folders such as HAM10000_images_part_1."
)


def load(options: LoadOptions) -> ImageDataset:
    """Return HAM10000 with a test split of 20 % that parts no lesion.

    Labels are the column ``dx`` in alphabetical order, groups are ``lesion_id``, and sites are ``dataset``
    (rosendahl, vidir_modern, vidir_molemax, vienna_dias), which some copies lack: then there are no sites.
    Rows without an image file are left out and named.

    Raises
    ------
    DatasetNotFoundError
        If the metadata or the images are not found.
    DatasetFormatError
        If the metadata lack a column, or a row of them is wrong; or too many images are damaged or missing.
    """
    root = options.root or standard_place(NAME)
    path = find_table(root, *METADATA)
    if path is None:
        raise DatasetNotFoundError(f"{root}: HAM10000's metadata were not found. {_LAYOUT}")
    table = read_table(path, ("lesion_id", "image_id", "dx"))
    require_distinct(path, table, "image_id")
    unknown = table.index[~table["dx"].isin(CLASS_NAMES)]
    if len(unknown):
        raise DatasetFormatError(
            f"{path}, line {unknown[0]}: dx is {table['dx'][unknown[0]]!r}; it must be one of "
            f"{', '.join(CLASS_NAMES)}."
        )
    there, left_out = rows_with_images(path, table, "image_id", root, _LAYOUT)
    return read_image_files(
        DESCRIPTION,
        LabelledFiles(
            root=root,
            class_names=CLASS_NAMES,
            names=there["file"].tolist(),
            labels=[CLASS_NAMES.index(name) for name in there["dx"]],
            sites=[site or UNKNOWN_SITE for site in there["dataset"]] if "dataset" in there else None,
            groups=there["lesion_id"].tolist(),
            left_out=left_out,
        ),
        options,
    )


def rows_with_images(
    path: Path, table: pd.DataFrame, column: str, root: Path, layout: str
) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Return the rows whose image lies below ``root``, with its path as column ``file``, and the other rows.

    The first are sorted by the image's name; the others are told by line.

    Raises
    ------
    DatasetNotFoundError
        If there is no image at all; the message ends with ``layout``.
    """
    files = find_images(root, _FOLDERS_DEEP)
    found = table.assign(file=table[column].map(files))
    missing = found["file"].isna()
    if missing.all():
        raise DatasetNotFoundError(
            f"{root}: none of the {len(table)} images of {path.name} is there. {layout}"
        )
    left_out = tuple(
        f"{path}, line {line}: no image file {name}" for line, name in table[column][missing].items()
    )
    return found[~missing].sort_values(column), left_out
