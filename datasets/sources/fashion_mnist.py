"""Fashion-MNIST from idx files in torchvision's layout, from Debian's package, or downloaded."""

import http.client
import os
import socket
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import platformdirs
import torch

from datasets.base import DataCard, ImageDataset, ImageSplit, LoadOptions
from datasets.errors import DatasetFormatError, DatasetNotFoundError
from datasets.sources.idx import read_idx

CARD = DataCard(
    name="fashion-mnist",
    title="Fashion-MNIST",
    source="Zalando Research (arXiv 1708.07747), https://github.com/zalandoresearch/fashion-mnist",
    licence="MIT",
    class_names=(
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    ),
    mean=(0.286,),
    std=(0.353,),
)

IMAGE_SIZE = 28
DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")
NETWORK_PATIENCE = 10.0
"""Seconds to wait for the download server's first answer, and for each later piece of data."""

_FILES = tuple(
    f"{split}-{kind}-ubyte" for split in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")
)
_GET_IT = (
    "Install the Debian package `dataset-fashion-mnist`, or call "
    "`torchvision.datasets.FashionMNIST(FOLDER, download=True)` where there is a network, "
    "and set data.root to that FOLDER."
)
_GET_IT_AGAIN = f"Remove the file and get the data set again. {_GET_IT}"


def load(options: LoadOptions) -> ImageDataset:
    """Return Fashion-MNIST; ``None`` as root searches the standard places, then tries a download.

    The published test split is used, so the seed changes nothing.

    Raises
    ------
    DatasetNotFoundError
        If the four files are in no place; the message lists every place, and why the download failed.
    DatasetFormatError
        If a file is damaged.
    """
    root = options.root
    looked: list[str] = []
    files = _find([root] if root is not None else standard_places(), looked)
    if files is None and root is None:
        try:
            _download(download_place())
            files = _find([download_place()], looked)
        except (OSError, RuntimeError, http.client.HTTPException) as error:
            reason = " ".join(str(error).split())
            looked.append(f"download to {download_place()}: {reason}")
    if files is None:
        places = "\n".join(f"  {line}" for line in looked)
        raise DatasetNotFoundError(f"Fashion-MNIST was not found. Looked in\n{places}\n{_GET_IT}")
    train_images, train_labels, test_images, test_labels = files
    return ImageDataset(CARD, _read_split(train_images, train_labels), _read_split(test_images, test_labels))


def download_place() -> Path:
    """Return the folder for downloaded data sets of this user."""
    return platformdirs.user_data_path("rarefl", appauthor=False) / "datasets"


def standard_places() -> list[Path]:
    """Return the folders that are searched when no root is given."""
    cache = platformdirs.user_cache_path("rarefl", appauthor=False) / "datasets"
    return [download_place(), cache, DEBIAN_FOLDER]


def _find(places: list[Path], looked: list[str]) -> list[Path] | None:
    """Return the four files in the first folder that has them all; tell ``looked`` of the others."""
    for place in places:
        if not os.path.isdir(place):
            looked.append(f"{place}: no such folder")
            continue
        for folder in (place / "FashionMNIST" / "raw", place / "raw", place):
            found = [_plain_or_compressed(folder / name) for name in _FILES]
            paths = [path for path in found if path is not None]
            if len(paths) == len(_FILES):
                return paths
            if os.path.isdir(folder):
                missing = [name for name, path in zip(_FILES, found, strict=True) if path is None]
                looked.append(f"{folder}: lacks {', '.join(missing)} (plain or .gz)")
    return None


def _plain_or_compressed(path: Path) -> Path | None:
    # os.path, because it answers False where a folder may not be entered; pathlib raises.
    compressed = path.with_name(f"{path.name}.gz")
    return next((candidate for candidate in (path, compressed) if os.path.isfile(candidate)), None)


def _read_split(images_path: Path, labels_path: Path) -> ImageSplit:
    images = read_idx(images_path, axes=3, way_out=_GET_IT_AGAIN)
    labels = read_idx(labels_path, axes=1, way_out=_GET_IT_AGAIN)
    if images.shape[1:] != (IMAGE_SIZE, IMAGE_SIZE):
        raise DatasetFormatError(
            f"{images_path}: found images of {images.shape[1]}x{images.shape[2]} pixels, "
            f"expected {IMAGE_SIZE}x{IMAGE_SIZE}. {_GET_IT_AGAIN}"
        )
    if len(images) != len(labels) or len(labels) == 0:
        raise DatasetFormatError(
            f"{labels_path}: found {len(labels)} labels, expected one for each of the {len(images)} images "
            f"in {images_path.name}, and at least one. {_GET_IT_AGAIN}"
        )
    if labels.max() >= len(CARD.class_names):
        position = int(labels.argmax())
        raise DatasetFormatError(
            f"{labels_path}: found label {labels[position]} at position {position}, "
            f"expected labels 0 to {len(CARD.class_names) - 1}. {_GET_IT_AGAIN}"
        )
    return ImageSplit(torch.from_numpy(images).unsqueeze(1), labels.astype(np.int64))


def _download(place: Path) -> None:
    """Download the four files with torchvision to ``place``, where they appear whole or not at all."""
    # Imported here because it takes seconds that nobody with the files on disk need pay.
    from torchvision.datasets import FashionMNIST

    _require_answer(FashionMNIST.mirrors[0] + FashionMNIST.resources[0][0])
    place.mkdir(parents=True, exist_ok=True)
    raw = place / "FashionMNIST" / "raw"
    with (
        tempfile.TemporaryDirectory(prefix="download-", dir=place) as folder,
        _socket_timeout(NETWORK_PATIENCE),
    ):
        FashionMNIST(folder, train=False, download=True)
        raw.mkdir(parents=True, exist_ok=True)
        for name in _FILES:
            (Path(folder) / "FashionMNIST" / "raw" / name).replace(raw / name)


def _require_answer(url: str) -> None:
    """Raise OSError unless the server answers in time.

    A thread, because name look-up and connecting to each of a host's addresses have no time limit together.
    """
    failures: list[OSError] = []

    def ask() -> None:
        try:
            request = urllib.request.Request(url, method="HEAD")
            urllib.request.urlopen(request, timeout=NETWORK_PATIENCE).close()
        except OSError as error:
            failures.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(NETWORK_PATIENCE)
    if thread.is_alive():
        raise TimeoutError(f"no answer within {NETWORK_PATIENCE:g} s from {url}")
    if failures:
        raise OSError(f"{failures[0]} ({url})") from failures[0]


@contextmanager
def _socket_timeout(seconds: float) -> Iterator[None]:
    """Give new sockets a time limit for the while: torchvision's download has none of its own."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
