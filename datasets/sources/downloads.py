"""Where the files of a published data set lie, and how they come there: found, downloaded, or one error."""

import http.client
import os
import socket
import tempfile
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import platformdirs
from filelock import FileLock

from datasets.errors import DatasetNotFoundError

NETWORK_PATIENCE = 10.0
"""Seconds to wait for the download server's first answer, and for each later piece of data."""


@dataclass(frozen=True)
class Origin:
    """What the files of a data set are called, where they may lie, and who gives them.

    Attributes
    ----------
    title
        Name of the data set in messages.
    files
        Names of the files; all are needed.
    folders
        Folders below a place in which the files may lie, together; a download puts them in the first.
    get_it
        What to do when they are not found.
    address
        Returns the URL that must answer before a download starts.
    fetch
        Downloads into the folder that it is given; then the files lie in the first of ``folders`` below it.
    more_places
        Places to search beside :func:`standard_places`.
    compressed
        Whether a file may be there as ``.gz`` instead.
    fetched
        Further files that a download brings and that other data sets read.
    """

    title: str
    files: tuple[str, ...]
    folders: tuple[str, ...]
    get_it: str
    address: Callable[[], str]
    fetch: Callable[[Path], None]
    more_places: tuple[Path, ...] = ()
    compressed: bool = False
    fetched: tuple[str, ...] = ()

    @property
    def get_it_again(self) -> str:
        """What to do about a damaged file."""
        return f"Remove the file and get the data set again. {self.get_it}"


def locate(origin: Origin, root: Path | None) -> list[Path]:
    """Return the files of a data set, in the order of ``origin.files``, all in one folder.

    ``None`` as root searches the standard places, then tries a download; a given root is the only place.

    Raises
    ------
    DatasetNotFoundError
        If a file is missing; the message lists every place, and why the download failed.
    """
    looked: list[str] = []
    places = [root] if root is not None else [*standard_places(), *origin.more_places]
    files = _find(origin, places, looked)
    if files is None and root is None:
        place = download_place()
        try:
            _require_answer(origin.address())
            files = _download(origin, place)
        except (OSError, RuntimeError, http.client.HTTPException) as error:
            looked.append(f"download to {place}: {' '.join(str(error).split())}")
    if files is None:
        lines = "\n".join(f"  {line}" for line in looked)
        raise DatasetNotFoundError(f"{origin.title} was not found. Looked in\n{lines}\n{origin.get_it}")
    return files


def download_place() -> Path:
    """Return the folder for downloaded data sets of this user."""
    return platformdirs.user_data_path("rarefl", appauthor=False) / "datasets"


def standard_places() -> list[Path]:
    """Return the folders that are searched for every data set when no root is given."""
    return [download_place(), platformdirs.user_cache_path("rarefl", appauthor=False) / "datasets"]


def _find(origin: Origin, places: list[Path], looked: list[str]) -> list[Path] | None:
    """Return the files in the first folder that has them all; tell ``looked`` of the others."""
    for place in places:
        if not os.path.isdir(place):
            looked.append(f"{place}: no such folder")
            continue
        for folder in (place / below for below in origin.folders):
            found = [_present(folder / name, origin.compressed) for name in origin.files]
            paths = [path for path in found if path is not None]
            if len(paths) == len(found):
                return paths
            if os.path.isdir(folder):
                missing = [name for name, path in zip(origin.files, found, strict=True) if path is None]
                or_gz = " (plain or .gz)" if origin.compressed else ""
                # os.access, because a folder that may not be entered looks empty.
                reason = (
                    f"lacks {', '.join(missing)}{or_gz}" if os.access(folder, os.X_OK) else "may not be read"
                )
                looked.append(f"{folder}: {reason}")
    return None


def _present(path: Path, compressed: bool) -> Path | None:
    # os.path, because it answers False where a folder may not be entered; pathlib raises.
    candidates = (path, path.with_name(f"{path.name}.gz")) if compressed else (path,)
    return next((candidate for candidate in candidates if os.path.isfile(candidate)), None)


def _download(origin: Origin, place: Path) -> list[Path] | None:
    """Download the files to ``place``, where they appear whole or not at all; one process at a time does."""
    place.mkdir(parents=True, exist_ok=True)
    with FileLock(place.parent / "download.lock"):
        if (files := _find(origin, [place], [])) is not None:
            return files
        with (
            tempfile.TemporaryDirectory(prefix="download-", dir=place) as folder,
            _socket_timeout(NETWORK_PATIENCE),
        ):
            origin.fetch(Path(folder))
            below = origin.folders[0]
            (place / below).mkdir(parents=True, exist_ok=True)
            for name in (*origin.fetched, *origin.files):
                if (path := Path(folder) / below / name).exists():
                    path.replace(place / below / name)
        return _find(origin, [place], [])


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
