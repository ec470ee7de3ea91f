"""Files that appear whole or not at all, whenever the power goes."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a temporary file beside ``path``, and put it in its place when it is on the disk."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        write(temporary)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()
    sync_folder(path.parent)


def append_text(path: Path, text: str) -> None:
    """Add text to a file; it is on the disk when the call returns."""
    new = not path.exists()
    with path.open("a", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    if new:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk, where the system can do that."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
