"""Image files decoded once: small squares in a memory-mapped file of the user's cache folder.

The name of an entry says which files, by path, size, time of change and whether they may be read, at which
image size. Images of a training and a test split are slices of one file: processes share its pages,
and no one holds a copy. The images are decoded in the order that they are expected to be used in, so that no
second file is needed; another split gets a file of its own.
"""

import contextlib
import errno
import hashlib
import itertools
import json
import os
import shutil
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import platformdirs
import torch

from datasets.images.cache_entries import cache_entry, last_use, whole_entries
from datasets.images.decoding import Pixels
from datasets.images.decoding_pool import decode_all
from datasets.images.decoding_progress import decoding_progress

_FORMAT = 2  # a change of the decoded pixels or of the files below takes the next number
_IMAGES, _SUMS, _DIGESTS, _PLACES, _FILES = (
    "images.npy",
    "sums.npy",
    "digests.npy",
    "places.npy",
    "files.json",
)
_DIGEST_BYTES = 16
_BLOCK = 256  # images that are copied at once
_KEPT_SPLITS = 4  # of one entry; the one used longest ago goes when a fifth is made


@dataclass(frozen=True, eq=False)
class CachedImages:
    """Decoded images of a list of files.

    Attributes
    ----------
    readable
        Positions in the list of the files that could be decoded, int64 (N,), ascending; all below is about
        these files, in this order.
    sums
        Sum, and sum of squares, of the pixels of each image and channel, int64 (N, 2, C).
    digests
        A digest of the pixels of each image, uint8 (N, 16): the same for equal pixels alone.
    places
        Where each image lies in the entry's file of images, int64 (N,).
    damaged
        Name of each other file, and what is wrong with it.
    """

    entry: Path
    readable: npt.NDArray[np.int64]
    sums: npt.NDArray[np.int64]
    digests: npt.NDArray[np.uint8]
    places: npt.NDArray[np.int64]
    damaged: dict[str, str]

    def arranged(
        self, train: npt.NDArray[np.int64], test: npt.NDArray[np.int64]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return training and test images, uint8 (N, C, H, W), as slices of one memory-mapped file.

        The tensors are copy-on-write: nothing that is written to them reaches the file.

        Parameters
        ----------
        train, test
            Positions of the images, in 0..N-1.

        Raises
        ------
        ImageCacheError
            If the file cannot be written.
        """
        if (slices := [_slice(self.places[positions]) for positions in (train, test)]).count(None) == 0:
            images = torch.from_numpy(np.load(self.entry / _IMAGES, mmap_mode="c"))
            return images[slices[0]], images[slices[1]]
        order = self.places[np.concatenate([train, test])]

        def build(folder: Path) -> None:
            images = np.load(self.entry / _IMAGES, mmap_mode="r")
            blocks = (images[order[start : start + _BLOCK]] for start in range(0, len(order), _BLOCK))
            _write_images(folder / _IMAGES, blocks, images.shape[1:])

        def read(folder: Path) -> torch.Tensor:
            images = torch.from_numpy(np.load(folder / _IMAGES, mmap_mode="c"))
            with contextlib.suppress(OSError):  # a cache that others filled may be read-only
                os.utime(folder)
            return images

        splits = self.entry / "splits"
        images = cache_entry(splits, hashlib.sha256(order.tobytes()).hexdigest()[:16], build, read)
        for folder in sorted(whole_entries(splits), key=last_use)[:-_KEPT_SPLITS]:
            shutil.rmtree(folder, ignore_errors=True)
        return images[: len(train)], images[len(train) :]

    def mean_and_std(self, positions: npt.NDArray[np.int64]) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return mean and standard deviation of each channel over some images, of pixels in [0, 1].

        The deviation is one gray level at least, so that one may divide by it.
        """
        shape = np.load(self.entry / _IMAGES, mmap_mode="r").shape
        pixels = len(positions) * shape[2] * shape[3]
        first, second = self.sums[positions].sum(axis=0)
        mean = first / pixels / 255
        std = np.sqrt(np.maximum(second / pixels / 255**2 - mean**2, 1 / 255**2))
        return tuple(mean.tolist()), tuple(std.tolist())


def cached_images(
    source: str,
    root: Path,
    names: Sequence[str],
    size: int,
    rgb: bool,
    order: npt.NDArray[np.int64] | None = None,
) -> CachedImages:
    """Return image files decoded to ``size`` x ``size`` pixels; only new or changed ones cost time.

    There is one channel where all images are gray and ``rgb`` is off, else there are three.

    Parameters
    ----------
    source
        Name of the data set, for the name of the entry.
    names
        Files relative to ``root``, each once.
    order
        Positions of all files in the order in which their images will lie in the file, if it is made now.

    Raises
    ------
    ImageCacheError
        If the cache folder cannot be written, or its disk is full; the message names it and the way out.
    """
    place = f"{source}-{_digest([str(root), size, rgb])}"
    name = f"{place}-{_digest([_FORMAT, *_changes(root, names)])}"
    needed = len(names) * 3 * size * size

    def build(folder: Path) -> None:
        free = shutil.disk_usage(folder).free
        if free < needed:
            raise OSError(errno.ENOSPC, f"{needed / 1e6:.0f} MB are needed and {free / 1e6:.0f} MB are free")
        paths = [root / name for name in names]
        _decode(folder, source, paths, size, rgb, np.arange(len(names)) if order is None else order)

    folder = cache_folder()
    cached = cache_entry(folder, name, build, lambda entry: _read(entry, names))
    for other in whole_entries(folder):
        if other != cached.entry and other.name.startswith(f"{place}-"):
            shutil.rmtree(other, ignore_errors=True)  # of files that have changed since
    return cached


def cache_folder() -> Path:
    """Return the folder for decoded images of this user."""
    return platformdirs.user_cache_path("rarefl", appauthor=False) / "images"


def _digest(parts: Sequence[object]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _changes(root: Path, names: Sequence[str]) -> Iterator[tuple[str, int, int, bool]]:
    """Yield each file's name, size, time of change and whether it may be read; -1 where it cannot be told."""
    for name in names:
        path = root / name
        try:
            status = os.stat(path)
            # Permission that is given later changes neither size nor time.
            yield name, status.st_size, status.st_mtime_ns, os.access(path, os.R_OK)
        except OSError:
            yield name, -1, -1, False


def _decode(
    folder: Path, source: str, paths: Sequence[Path], size: int, rgb: bool, order: npt.NDArray[np.int64]
) -> None:
    """Decode files into ``folder``, in this order."""
    damaged: dict[int, str] = {}
    readable: list[int] = []
    sums = np.zeros((len(paths), 2, 3), dtype=np.int64)
    digests = np.zeros((len(paths), _DIGEST_BYTES), dtype=np.uint8)

    def decoded() -> Generator[Pixels, None, None]:
        with (
            decoding_progress(source, len(paths)) as done,
            contextlib.closing(decode_all([paths[position] for position in order], size)) as results,
        ):
            for position, result in zip(order.tolist(), results, strict=True):
                if isinstance(result, str):
                    damaged[position] = result
                else:
                    readable.append(position)
                    values = result.reshape(len(result), -1).astype(np.int64)
                    sums[position] = np.stack([values.sum(axis=1), (values**2).sum(axis=1)])
                    digest = hashlib.blake2b(result.tobytes(), digest_size=_DIGEST_BYTES).digest()
                    digests[position] = np.frombuffer(digest, dtype=np.uint8)
                    yield result
                done()

    with contextlib.closing(decoded()) as images:
        channels = _write_decoded(folder, images, size, rgb)
    places = np.argsort(readable)
    kept = np.array(readable, dtype=np.int64)[places]
    np.save(folder / _SUMS, sums[kept][:, :, :channels])
    np.save(folder / _DIGESTS, digests[kept])
    np.save(folder / _PLACES, places)
    (folder / _FILES).write_text(json.dumps({"damaged": sorted(damaged.items())}), encoding="utf-8")


def _write_decoded(folder: Path, images: Iterator[Pixels], size: int, rgb: bool) -> int:
    """Write images as they come and return their channels: one until the first in colours, then three."""
    colours: list[Pixels] = []

    def gray() -> Iterator[Pixels]:
        for image in images:
            if rgb or len(image) > 1:
                colours.append(image)
                return
            yield image[None]

    _write_images(folder / _IMAGES, gray(), (1, size, size))
    if not colours:
        return 1
    before = np.load(folder / _IMAGES, mmap_mode="r")
    blocks = (before[start : start + _BLOCK] for start in range(0, len(before), _BLOCK))
    rest = (image[None] for image in itertools.chain(colours, images))
    three = (np.broadcast_to(block, (len(block), 3, size, size)) for block in itertools.chain(blocks, rest))
    _write_images(folder / "colours.npy", three, (3, size, size))
    del before
    os.replace(folder / "colours.npy", folder / _IMAGES)
    return 3


def _slice(places: npt.NDArray[np.int64]) -> slice | None:
    """Return the slice that these places are, ascending without a gap; None if they are not one."""
    if (np.diff(places) != 1).any():
        return None
    start = int(places[0]) if len(places) else 0
    return slice(start, start + len(places))


def _read(entry: Path, names: Sequence[str]) -> CachedImages:
    damaged = dict(json.loads((entry / _FILES).read_text(encoding="utf-8"))["damaged"])
    readable = np.setdiff1d(np.arange(len(names)), np.array(list(damaged), dtype=np.int64))
    sums = np.load(entry / _SUMS)
    digests, places = np.load(entry / _DIGESTS), np.load(entry / _PLACES)
    images = np.load(entry / _IMAGES, mmap_mode="r")
    if not len(images) == len(sums) == len(digests) == len(readable):
        raise ValueError(f"{entry}: {len(images)} images, {len(sums)} sums, {len(readable)} files")
    if not np.array_equal(np.sort(places), np.arange(len(images))):
        raise ValueError(f"{entry}: its places are not 0 to {len(images) - 1}")
    return CachedImages(
        entry, readable, sums, digests, places, {names[at]: reason for at, reason in damaged.items()}
    )


def _write_images(path: Path, blocks: Iterable[npt.NDArray[np.uint8]], shape: Sequence[int]) -> None:
    """Write blocks of images, each (B, *shape), one after the other into an .npy file.

    Writing by ``write`` and not through a memory map: a full disk is an OSError, not the end of the process.
    """
    count = 0
    with path.open("wb") as file:

        def header() -> int:
            file.seek(0)
            description = {"descr": "|u1", "fortran_order": False, "shape": (count, *shape)}
            np.lib.format.write_array_header_1_0(file, description)
            return file.tell()

        length = header()
        for block in blocks:
            file.write(block.tobytes())
            count += len(block)
        assert header() == length  # NumPy leaves room for the first axis to grow
        file.flush()
        os.fsync(file.fileno())
