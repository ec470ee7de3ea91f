"""OctMNIST and DermaMNIST by medmnist's reader, from its npz files, or downloaded.

The published training and test splits are used. The validation split is in neither: FairFAL's experiments
(arXiv 2603.10341) leave it out, and a model is measured on the test split alone.
"""

import os
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch

from datasets.base import DataCard, ImageDataset, ImageSplit, LoadOptions
from datasets.errors import DatasetFormatError
from datasets.sources.downloads import Origin, locate
from datasets.sources.labels import unify_labels

_SOURCE = "MedMNIST v2 (doi 10.1038/s41597-022-01721-8), https://medmnist.com"

OCTMNIST = DataCard(
    name="octmnist",
    title="OctMNIST",
    source=f"{_SOURCE}, from Kermany et al. (doi 10.1016/j.cell.2018.02.010)",
    licence="CC BY 4.0",
    class_names=("choroidal neovascularization", "diabetic macular edema", "drusen", "normal"),
    mean=(0.5,),  # as in MedMNIST's own and FairFAL's experiments
    std=(0.5,),
)

DERMAMNIST = DataCard(
    name="dermamnist",
    title="DermaMNIST",
    source=f"{_SOURCE}, from HAM10000 (doi 10.1038/sdata.2018.161)",
    licence="CC BY-NC 4.0",
    class_names=(
        "actinic keratoses and intraepithelial carcinoma",
        "basal cell carcinoma",
        "benign keratosis-like lesions",
        "dermatofibroma",
        "melanoma",
        "melanocytic nevi",
        "vascular lesions",
    ),
    mean=(0.5, 0.5, 0.5),
    std=(0.5, 0.5, 0.5),
)

SIZES = (28, 64, 128, 224)
"""Sides in pixels of the published images; each size but the first has files of its own."""


def load_octmnist(options: LoadOptions) -> ImageDataset:
    """Return OctMNIST: retinal scans, grayscale, 4 classes. Roots, sizes and errors as :func:`_load`."""
    return _load(OCTMNIST, "OCTMNIST", options)


def load_dermamnist(options: LoadOptions) -> ImageDataset:
    """Return DermaMNIST: skin lesions in colour, 7 classes, one of which is two thirds of the images.

    Several images may show one lesion, and its split is not known to keep these together. Roots, sizes and
    errors as :func:`_load`.
    """
    return _load(DERMAMNIST, "DermaMNIST", options)


def published_size(image_size: int) -> int:
    """Return the size of the files from which images of a size are made: the least that is not enlarged.

    0 stands for the smallest of all; images larger than all files are made from the largest.
    """
    return next((size for size in SIZES if size >= image_size), SIZES[-1])


def _load(card: DataCard, reader: str, options: LoadOptions) -> ImageDataset:
    """Return one of MedMNIST's sets from the files of :func:`published_size`; the seed changes nothing.

    ``None`` as root searches the standard places, among them medmnist's, then tries a download.

    Raises
    ------
    DatasetNotFoundError
        If the file is in no place; the message lists every place, and why the download failed.
    DatasetFormatError
        If the file is damaged or holds something else.
    """
    size = published_size(options.image_size)
    suffix = "" if size == SIZES[0] else f"_{size}"
    file = f"{card.name}{suffix}.npz"

    def info() -> dict[str, Any]:
        # Imported late because it takes seconds that a run with other data need not pay.
        from medmnist import INFO

        return dict(INFO[card.name])

    def fetch(folder: Path) -> None:
        from torchvision.datasets.utils import download_url

        # What medmnist's own download does, which hides why it failed.
        download_url(info()[f"url{suffix}"], folder, file, info()[f"MD5{suffix}"])

    origin = Origin(
        title=f"{card.title} ({size}x{size} pixels)",
        files=(file,),
        folders=(".",),
        get_it=(
            f"Call `medmnist.{reader}(split='train', download=True, size={size}, root=FOLDER)` where there "
            "is a network, and set data.root to that FOLDER. data.image-size decides which size is read."
        ),
        address=lambda: str(info()[f"url{suffix}"]),
        fetch=fetch,
        more_places=(Path(os.path.expanduser("~/.medmnist")),),
    )
    (path,) = locate(origin, options.root)
    train, test = (
        _read_split(path, size, split, card, reader, origin.get_it_again) for split in ("train", "test")
    )
    return ImageDataset(card, train, test)


def _read_split(path: Path, size: int, split: str, card: DataCard, reader: str, way_out: str) -> ImageSplit:
    import medmnist

    try:
        read = getattr(medmnist, reader)(split=split, root=str(path.parent), size=size)
        images, labels = np.asarray(read.imgs), np.asarray(read.labels)
    except KeyError as error:
        with np.load(path) as arrays:
            keys = ", ".join(arrays)
        raise DatasetFormatError(
            f"{path}: found no {split}_images or {split}_labels among {keys} ({error}). {way_out}"
        ) from error
    except (OSError, EOFError, ValueError, IndexError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise DatasetFormatError(
            f"{path}: found unreadable data ({error}), expected a whole npz file. {way_out}"
        ) from error
    channels = len(card.mean)
    expected = (size, size) if channels == 1 else (size, size, channels)
    if images.dtype != np.uint8 or images.shape[1:] != expected:
        raise DatasetFormatError(
            f"{path}: found {split} images of type {images.dtype} and shape {images.shape}, expected uint8 "
            f"and (N, {', '.join(map(str, expected))}). {way_out}"
        )
    if len(images) != len(labels) or len(labels) == 0:
        raise DatasetFormatError(
            f"{path}: found {len(labels)} {split} labels, expected one for each of the {len(images)} images, "
            f"and at least one. {way_out}"
        )
    values = unify_labels(labels, f"{path} ({split}_labels)", card.class_names, way_out=way_out).values
    pixels = torch.from_numpy(images)
    pixels = pixels.unsqueeze(1) if channels == 1 else pixels.permute(0, 3, 1, 2).contiguous()
    return ImageSplit(pixels, values)
