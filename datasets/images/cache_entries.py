"""Entries of a cache: folders that appear whole or not at all, each built by one process."""

import contextlib
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from filelock import FileLock, Timeout

from datasets.errors import ImageCacheError

logger = logging.getLogger("rarefl")

Read = TypeVar("Read")

_PARTIAL = ".partial"


def cache_entry(folder: Path, name: str, build: Callable[[Path], None], read: Callable[[Path], Read]) -> Read:
    """Return what ``read`` returns of an entry; one process builds it if it is not there or damaged.

    Raises
    ------
    ImageCacheError
        If the folder cannot be written, or its disk is full.
    """

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


def whole_entries(folder: Path) -> list[Path]:
    """Return the whole entries of a folder."""
    return [path for path in folder.iterdir() if path.is_dir() and path.suffix != _PARTIAL]


def last_use(entry: Path) -> int:
    """Return when an entry was made or last marked as used, in nanoseconds."""
    return entry.stat().st_mtime_ns
