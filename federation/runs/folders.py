"""Where the folder of a run lies, and that one run at a time writes to it."""

import hashlib
import json
import os
import socket
import tempfile
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import psutil
from filelock import BaseFileLock, FileLock, Timeout

from federation.errors import RunFolderError

DEFAULT_PARENT = "~/rarefl/runs"
"""Folder of all runs that are not told where to write."""


def absolute_path(key: str, directory: str) -> Path:
    """Return the path of a folder that stands in the run config; raises RunFolderError if it is relative."""
    try:
        path = Path(directory).expanduser()
    except RuntimeError as error:
        raise RunFolderError(f"{key} = {directory!r}: {error}; give an absolute path") from None
    if not path.is_absolute():
        raise RunFolderError(
            f"{key} = {directory!r} is relative. The server's working folder is one of Flower's, "
            "not the one in which you typed `flwr run`; give an absolute path, such as "
            f"{Path.home() / path}"
        )
    return path


def cannot_write(key: str, path: Path, error: Exception) -> RunFolderError:
    """Return the error that says why a folder cannot be written, and the way out."""
    reason = getattr(error, "strerror", None) or error
    return RunFolderError(
        f"{key}: cannot write to {path}: {reason}. Give the path of a folder "
        "that the user who runs the SuperLink may write to"
    )


def new_folder(parent: Path, label: str) -> Path:
    """Make a folder named by the time and the label; runs that start in the same second get numbers."""
    parent.mkdir(parents=True, exist_ok=True)
    name = f"{datetime.now():%Y%m%d-%H%M%S}-{label}"
    number = 1
    while True:
        path = parent / (name if number == 1 else f"{name}-{number}")
        with suppress(FileExistsError):
            path.mkdir()
            return path
        number += 1


def locked(key: str, path: Path) -> BaseFileLock:
    """Return the lock of a folder, held by this process; it lies outside, so that the folder stays clean.

    Raises
    ------
    RunFolderError
        Another process holds it; the message tells which.
    """
    file = _lock_file(path)
    holder = file.with_suffix(".json")
    lock = FileLock(file, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise RunFolderError(
            f"{key}: another run is writing to {path}{_holder(holder)}; wait for its end, or give another "
            "folder"
        ) from None
    told = {"pid": os.getpid(), "host": socket.gethostname(), "since": f"{datetime.now():%Y-%m-%d %H:%M}"}
    with suppress(OSError):  # without the note the lock holds all the same
        holder.write_text(json.dumps(told), encoding="utf-8")
    return lock


def is_held(path: Path) -> bool:
    """Whether a run is writing to a folder."""
    lock = FileLock(_lock_file(path), timeout=0)
    try:
        lock.acquire()
    except Timeout:
        return True
    lock.release()
    return False


def _lock_file(path: Path) -> Path:
    digest = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"rarefl-{digest}.lock"


def _holder(file: Path) -> str:
    """Return what is known of the process that holds a lock."""
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
        pid, host, since = int(told["pid"]), told["host"], told["since"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    if host == socket.gethostname() and not psutil.pid_exists(pid):
        return ""
    if pid == os.getpid():
        return f": this very process does, since {since}"
    return f", held by process {pid} on {host} since {since} (`kill {pid}` ends it)"
