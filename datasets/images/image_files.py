"""From labelled image files to a data set: decoding, test split, and what is left out."""

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import platformdirs

from datasets.base import DataCard, ImageDataset, ImageSplit, LoadOptions, Sites
from datasets.errors import DatasetFormatError
from datasets.images.decoding import SUFFIXES
from datasets.images.image_cache import cached_images
from datasets.partitions.splits import draw_test_split

logger = logging.getLogger("rarefl")

IMAGE_SIZE = 64
"""Side in pixels of images from files, unless ``data.image-size`` says otherwise."""

_TOLD = 5  # files that an error lists


@dataclass(frozen=True)
class Description:
    """What a data card tells beside what is counted from the images."""

    name: str
    title: str
    source: str
    licence: str


@dataclass(frozen=True)
class LabelledFiles:
    """Image files and what is known of each; lists are as long as ``names``.

    Attributes
    ----------
    names
        Files relative to ``root``.
    sites
        Name of each file's site.
    groups
        Files with the same text show the same thing, and count for the site of the first of them; "" stands
        for a file of its own.
    in_test
        Whether each file is in the published test split; without it a split is drawn.
    left_out
        What is left out already, with the reason.
    """

    root: Path
    class_names: tuple[str, ...]
    names: Sequence[str]
    labels: Sequence[int]
    sites: Sequence[str] | None = None
    groups: Sequence[str] | None = None
    in_test: Sequence[bool] | None = None
    left_out: tuple[str, ...] = field(default=())


def read_image_files(description: Description, files: LabelledFiles, options: LoadOptions) -> ImageDataset:
    """Return the data set of labelled image files, decoded once for all processes.

    Without a published test split, 20 % of each class are drawn by the seed (``splits.draw_test_split``).
    Mean and deviation on the card are those of the training images.

    Raises
    ------
    DatasetFormatError
        If more than ``options.max_unreadable`` of the images are damaged, or a split is empty.
    ImageCacheError
        If the decoded images cannot be kept.
    """
    size = options.image_size or IMAGE_SIZE
    cached = cached_images(description.name, files.root, files.names, size, options.rgb)
    left_out = (
        *files.left_out,
        *(f"{files.root / name}: {reason}" for name, reason in cached.damaged.items()),
    )
    _require_readable(left_out, len(files.names) + len(files.left_out), files.root, options.max_unreadable)
    labels = np.array(files.labels, dtype=np.int64)[cached.readable]
    _tell_left_out(files.root, left_out)
    groups = None if files.groups is None else _group_numbers(files.groups)
    site_names: tuple[str, ...] = ()
    sites = None
    if files.sites is not None:
        site_names, all_sites = _numbers(files.sites)
        if groups is not None:
            _, first, group_of = np.unique(groups, return_index=True, return_inverse=True)
            all_sites = all_sites[first][group_of]
        sites = all_sites[cached.readable]
    if groups is not None:
        groups = groups[cached.readable]
    if files.in_test is None:
        train, test = draw_test_split(labels, description.name, options.seed, sites, groups)
    else:
        in_test = np.array(files.in_test, dtype=bool)[cached.readable]
        train, test = np.flatnonzero(~in_test), np.flatnonzero(in_test)
    for split, positions in (("training", train), ("test", test)):
        if len(positions) == 0:
            raise DatasetFormatError(
                f"{files.root}: no {split} image is left of {len(files.names)} images. A test image is drawn "
                "from each class of two images or more; add images."
            )
    mean, std = cached.mean_and_std(train)
    train_images, test_images = cached.arranged(train, test)
    return ImageDataset(
        card=DataCard(
            name=description.name,
            title=description.title,
            source=description.source,
            licence=description.licence,
            class_names=files.class_names,
            mean=mean,
            std=std,
        ),
        train=ImageSplit(train_images, labels[train]),
        test=ImageSplit(test_images, labels[test]),
        sites=None if sites is None else Sites(site_names, sites[train], sites[test]),
        train_groups=None if groups is None else groups[train],
        left_out=left_out,
    )


def standard_place(name: str) -> Path:
    """Return the folder in which a data set is looked for when no root is given."""
    return platformdirs.user_data_path("rarefl", appauthor=False) / "datasets" / name


def hidden(name: str) -> bool:
    """Return whether an operating system, and no person, made a file or folder of this name."""
    return name.startswith(".") or name.lower() in ("thumbs.db", "desktop.ini", "__macosx")


def find_images(root: Path, depth: int) -> dict[str, str]:
    """Return image files by their name without suffix, as paths relative to ``root``, ``depth`` folders down.

    Of two files of one name the first counts: in the folder itself, then in its folders by name.
    """
    found: dict[str, str] = {}
    for relative in _image_paths(root, Path(), depth):
        found.setdefault(relative.stem, relative.as_posix())
    return found


def _image_paths(root: Path, folder: Path, depth: int) -> Iterator[Path]:
    folders: list[Path] = []
    try:
        with os.scandir(root / folder) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if hidden(entry.name):
                    continue
                if entry.is_dir():
                    folders.append(folder / entry.name)
                elif entry.name.lower().endswith(SUFFIXES):
                    yield folder / entry.name
    except OSError as error:
        raise DatasetFormatError(
            f"{root / folder}: cannot be read: {error.strerror}. Allow reading it, or leave it out."
        ) from error
    if depth:
        for inner in folders:
            yield from _image_paths(root, inner, depth - 1)


def _require_readable(left_out: Sequence[str], total: int, root: Path, most: float) -> None:
    if len(left_out) <= most * total and len(left_out) < total:
        return
    lines = [f"  {line}" for line in left_out[:_TOLD]]
    if len(left_out) > _TOLD:
        lines.append(f"  and {len(left_out) - _TOLD} more")
    raise DatasetFormatError(
        f"{root}: {len(left_out)} of {total} images cannot be used, more than data.max-unreadable = {most} "
        "allows:\n" + "\n".join(lines) + "\nRepair or remove them, or raise data.max-unreadable."
    )


def _tell_left_out(root: Path, left_out: Sequence[str]) -> None:
    if left_out:
        logger.warning(
            "%s: images that cannot be used were left out: %d, such as %s", root, len(left_out), left_out[0]
        )


def _numbers(texts: Sequence[str]) -> tuple[tuple[str, ...], npt.NDArray[np.int64]]:
    """Return the distinct texts, sorted, and the position of each text among them."""
    names, numbers = np.unique(np.array(texts), return_inverse=True)
    return tuple(names.tolist()), numbers.astype(np.int64)


def _group_numbers(groups: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return the number of each file's group; "" gets a number of its own."""
    return _numbers([f"group {group}" if group else f"single {i}" for i, group in enumerate(groups)])[1]
