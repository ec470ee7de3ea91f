"""Image files decoded once: small squares in a memory-mapped file of the user's cache folder.

An entry of the cache is a folder that appears whole or not at all. Its name says which files, by path, size,
time of change and whether they may be read, at which image size. Images of a training and a test split lie
one after the other in a file of their own, so that each is a slice of a file: processes share its pages, and
no one holds a copy.
"""

import contextlib
import errno
import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import platformdirs
import torch
from filelock import FileLock, Timeout

from datasets.errors import ImageCacheError
from datasets.images.decoding_pool import decode_all
from datasets.images.decoding_progress import decoding_progress

logger = logging.getLogger("rarefl")

Read = TypeVar("Read")

_FORMAT = 1  # a change of the decoded pixels or of the files below takes the next number
_IMAGES, _SUMS, _FILES = "images.npy", "sums.npy", "files.json"
_PARTIAL = ".partial"
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
    damaged
        Name of each other file, and what is wrong with it.
    """

    entry: Path
    readable: npt.NDArray[np.int64]
    sums: npt.NDArray[np.int64]
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
        order = np.concatenate([train, test])

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
        images = _entry(splits, hashlib.sha256(order.tobytes()).hexdigest()[:16], build, read)
        for folder in sorted(_entries(splits), key=_last_use)[:-_KEPT_SPLITS]:
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


def cached_images(source: str, root: Path, names: Sequence[str], size: int, rgb: bool) -> CachedImages:
    """Return image files decoded to ``size`` x ``size`` pixels; only new or changed ones cost time.

    There is one channel where all images are gray and ``rgb`` is off, else there are three.

    Parameters
    ----------
    source
        Name of the data set, for the name of the entry.
    names
        Files relative to ``root``, each once.

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
        _decode(folder, source, [root / name for name in names], size, rgb)

    folder = cache_folder()
    cached = _entry(folder, name, build, lambda entry: _read(entry, names))
    for other in _entries(folder):
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


def _decode(folder: Path, source: str, paths: Sequence[Path], size: int, rgb: bool) -> None:
    """Decode files into ``folder``."""
    damaged: dict[int, str] = {}
    sums: list[npt.NDArray[np.int64]] = []
    colours = rgb

    def images() -> Iterator[npt.NDArray[np.uint8]]:
        nonlocal colours
        with (
            decoding_progress(source, len(paths)) as done,
            contextlib.closing(decode_all(paths, size)) as results,
        ):
            for position, result in enumerate(results):
                if isinstance(result, str):
                    damaged[position] = result
                else:
                    colours |= len(result) == 3
                    image = np.broadcast_to(result, (3, size, size))
                    values = image.reshape(3, -1).astype(np.int64)
                    sums.append(np.stack([values.sum(axis=1), (values**2).sum(axis=1)]))
                    yield image[None]
                done()

    _write_images(folder / _IMAGES, images(), (3, size, size))
    channels = 3 if colours else 1
    if not colours:
        three = np.load(folder / _IMAGES, mmap_mode="r")
        blocks = (three[start : start + _BLOCK, :1] for start in range(0, len(three), _BLOCK))
        _write_images(folder / "gray.npy", blocks, (1, size, size))
        del three
        os.replace(folder / "gray.npy", folder / _IMAGES)
    np.save(folder / _SUMS, np.array(sums, dtype=np.int64).reshape(-1, 2, 3)[:, :, :channels])
    (folder / _FILES).write_text(json.dumps({"damaged": list(damaged.items())}), encoding="utf-8")


def _read(entry: Path, names: Sequence[str]) -> CachedImages:
    damaged = dict(json.loads((entry / _FILES).read_text(encoding="utf-8"))["damaged"])
    readable = np.setdiff1d(np.arange(len(names)), np.array(list(damaged), dtype=np.int64))
    sums = np.load(entry / _SUMS)
    images = np.load(entry / _IMAGES, mmap_mode="r")
    if not len(images) == len(sums) == len(readable):
        raise ValueError(f"{entry}: {len(images)} images, {len(sums)} sums, {len(readable)} files")
    return CachedImages(
        entry, readable, sums, {names[position]: reason for position, reason in damaged.items()}
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


def _entry(folder: Path, name: str, build: Callable[[Path], None], read: Callable[[Path], Read]) -> Read:
    """Return what ``read`` returns of an entry; one process builds it if it is not there or damaged."""

    def found() -> Read | None:
        try:
            return read(folder / name)
        except (OSError, EOFError, ValueError, KeyError):
            return None

    if (result := found()) is not None:
        return result
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _lock(folder, name):
            if (result := found()) is not None:
                return result
            shutil.rmtree(folder / name, ignore_errors=True)
            _remove_abandoned(folder, name)
            with tempfile.TemporaryDirectory(
                prefix=f"{name}.", suffix=_PARTIAL, dir=folder, ignore_cleanup_errors=True
            ) as partial:
                whole = Path(partial) / "entry"
                whole.mkdir()
                build(whole)
                os.replace(whole, folder / name)
            return read(folder / name)
    except OSError as error:
        raise ImageCacheError(
            f"{folder}: decoded images cannot be kept in this folder: {error.strerror or error}. Make it "
            "writable with free space on its disk, or set the environment variable XDG_CACHE_HOME to another "
            "folder."
        ) from error


@contextlib.contextmanager
def _lock(folder: Path, name: str) -> Iterator[None]:
    """Hold an entry's lock, which the operating system takes back from a process that is killed."""
    lock = FileLock(folder / f"{name}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        logger.info("Another process decodes the same images; waiting for it")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _remove_abandoned(folder: Path, own: str) -> None:
    """Remove what killed processes left half built; whoever still builds holds the entry's lock."""
    for partial in folder.glob(f"*{_PARTIAL}"):
        name = partial.name.split(".")[0]
        with contextlib.suppress(Timeout):
            if name == own:
                shutil.rmtree(partial, ignore_errors=True)
            else:
                with FileLock(folder / f"{name}.lock", timeout=0):
                    shutil.rmtree(partial, ignore_errors=True)


def _entries(folder: Path) -> list[Path]:
    """Return the whole entries of a folder."""
    return [path for path in folder.iterdir() if path.is_dir() and path.suffix != _PARTIAL]


def _last_use(entry: Path) -> int:
    return entry.stat().st_mtime_ns
