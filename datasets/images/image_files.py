"""From labelled image files to a data set: decoding, test split, and what is left out."""

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import platformdirs

from datasets.base import Copies, DataCard, ImageDataset, ImageSplit, LoadOptions, Sites
from datasets.errors import DatasetFormatError
from datasets.images.copies import (
    content_numbers,
    contradictions,
    in_both_splits,
    kept_together,
)
from datasets.images.decoding import SUFFIXES
from datasets.images.image_cache import cached_images
from datasets.partitions.splits import draw_test_split

logger = logging.getLogger("rarefl")

Ints = npt.NDArray[np.int64]

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
    Of the same image under two labels all are left out and named; copies with one label are one group, so
    that they are in one split and, where images are dealt, at one client. A training image that is in the
    published test split as well is left out and named.
    Mean and deviation on the card are those of the training images.

    Raises
    ------
    DatasetFormatError
        If more than ``options.max_unreadable`` of the images are damaged, or a split is empty.
    ImageCacheError
        If the decoded images cannot be kept.
    """
    size = options.image_size or IMAGE_SIZE
    every = _Known.of(files)
    expected = np.concatenate(every.splits(description.name, options.seed))
    cached = cached_images(description.name, files.root, files.names, size, options.rgb, expected)
    unreadable = (
        *files.left_out,
        *(f"{files.root / name}: {reason}" for name, reason in cached.damaged.items()),
    )
    _require_readable(unreadable, len(files.names) + len(files.left_out), files.root, options.max_unreadable)
    readable = every.only(cached.readable)
    content = content_numbers(cached.digests)
    told, copies, kept = _without_copies(files, cached.readable, content, readable)
    left_out = (*unreadable, *told)
    _tell_left_out(files.root, left_out)
    known = readable.only(kept)
    known = replace(known, groups=kept_together(known.groups, content[kept]))
    splits = known.splits(description.name, options.seed)
    for split, positions in zip(("training", "test"), splits, strict=True):
        if len(positions) == 0:
            raise DatasetFormatError(
                f"{files.root}: no {split} image is left of {len(files.names)} images. A test image is drawn "
                "from each class of two images or more; add images."
            )
    train, test = (kept[positions] for positions in splits)
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
        train=ImageSplit(train_images, readable.labels[train]),
        test=ImageSplit(test_images, readable.labels[test]),
        sites=None
        if readable.sites is None
        else Sites(every.site_names, readable.sites[train], readable.sites[test]),
        train_groups=None if known.groups is None else known.groups[splits[0]],
        left_out=left_out,
        copies=copies,
    )


@dataclass(frozen=True, eq=False)
class _Known:
    """What is known of N images: label, site, group and published split of each, (N,)."""

    labels: Ints
    site_names: tuple[str, ...]
    sites: Ints | None
    groups: Ints | None
    in_test: npt.NDArray[np.bool_] | None

    @classmethod
    def of(cls, files: LabelledFiles) -> "_Known":
        """Return what is known of all files; those of a group are at the site of the first of them."""
        groups = None if files.groups is None else _group_numbers(files.groups)
        names, sites = ((), None) if files.sites is None else _numbers(files.sites)
        if groups is not None and sites is not None:
            _, first, group_of = np.unique(groups, return_index=True, return_inverse=True)
            sites = sites[first][group_of]
        in_test = None if files.in_test is None else np.array(files.in_test, dtype=bool)
        return cls(np.array(files.labels, dtype=np.int64), names, sites, groups, in_test)

    def only(self, positions: Ints) -> "_Known":
        """Return what is known of the images at these positions."""
        return _Known(
            self.labels[positions],
            self.site_names,
            None if self.sites is None else self.sites[positions],
            None if self.groups is None else self.groups[positions],
            None if self.in_test is None else self.in_test[positions],
        )

    def splits(self, source: str, seed: int) -> tuple[Ints, Ints]:
        """Return the positions of training and test images: those published, or else drawn."""
        if self.in_test is None:
            return draw_test_split(self.labels, source, seed, self.sites, self.groups)
        return np.flatnonzero(~self.in_test), np.flatnonzero(self.in_test)


def _without_copies(
    files: LabelledFiles, readable: Ints, content: Ints, known: _Known
) -> tuple[tuple[str, ...], Copies, Ints]:
    """Return what is left out of the readable images with the reason, the counts, and the kept positions."""
    names = [str(files.root / files.names[position]) for position in readable]
    opposed = contradictions(content, known.labels)
    leaked: dict[int, int] = {}
    if known.in_test is not None:
        found = in_both_splits(content, known.in_test)
        leaked = {image: copy for image, copy in found.items() if image not in opposed}
    told = (
        *(
            f"{names[image]}: the same image is in class {files.class_names[known.labels[copy]]!r}, too: "
            f"{names[copy]}"
            for image, copy in sorted(opposed.items())
        ),
        *(
            f"{names[image]}: the same image is in the test split, too: {names[copy]}"
            for image, copy in sorted(leaked.items())
        ),
    )
    kept = np.setdiff1d(np.arange(len(readable)), np.array([*opposed, *leaked], dtype=np.int64))
    again = len(kept) - len(np.unique(content[kept]))
    return told, Copies(len(opposed), len(leaked), again), kept


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


def _numbers(texts: Sequence[str]) -> tuple[tuple[str, ...], Ints]:
    """Return the distinct texts, sorted, and the position of each text among them."""
    names, numbers = np.unique(np.array(texts), return_inverse=True)
    return tuple(names.tolist()), numbers.astype(np.int64)


def _group_numbers(groups: Sequence[str]) -> Ints:
    """Return the number of each file's group; "" gets a number of its own."""
    return _numbers([f"group {group}" if group else f"single {i}" for i, group in enumerate(groups)])[1]
