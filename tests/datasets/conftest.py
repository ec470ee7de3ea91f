"""Tiny data sets in the exact layout of the published ones."""

import contextlib
import gzip
import http.server
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datasets.sources import fashion_mnist

NAMES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def idx_bytes(array: np.ndarray) -> bytes:
    """Return an array of bytes as the content of an idx file."""
    header = struct.pack(f">{1 + array.ndim}I", 0x0800 | array.ndim, *array.shape)
    return header + array.astype(np.uint8).tobytes()


@pytest.fixture
def tiny_arrays() -> dict[str, np.ndarray]:
    """Return the four arrays of a Fashion-MNIST of 60 training and 20 test images."""
    rng = np.random.default_rng(3)
    return {
        "train-images-idx3-ubyte": rng.integers(0, 256, (60, 28, 28)),
        "train-labels-idx1-ubyte": rng.permutation(np.arange(60) % 10),
        "t10k-images-idx3-ubyte": rng.integers(0, 256, (20, 28, 28)),
        "t10k-labels-idx1-ubyte": rng.permutation(np.arange(20) % 10),
    }


@pytest.fixture
def write_fashion_mnist(tiny_arrays: dict[str, np.ndarray]) -> Callable[..., Path]:
    """Return a function that writes the tiny Fashion-MNIST into a folder, with other arrays where given."""

    def write(folder: Path, compressed: bool = False, **other: np.ndarray) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        for name, array in tiny_arrays.items():
            content = idx_bytes(other.get(name.split("-idx")[0].replace("-", "_"), array))
            if compressed:
                (folder / f"{name}.gz").write_bytes(gzip.compress(content))
            else:
                (folder / name).write_bytes(content)
        return folder

    return write


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        """Keep the test's output clean."""


@pytest.fixture
def serving() -> Callable[[Path], contextlib.AbstractContextManager[str]]:
    """Return a function that serves the files of a folder at a URL while its context lasts."""

    @contextlib.contextmanager
    def serve(folder: Path) -> Iterator[str]:
        handler = partial(Quiet, directory=str(folder))
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            yield f"http://127.0.0.1:{server.server_port}/"
            server.shutdown()

    return serve


@pytest.fixture
def refusing() -> str:
    """Return a URL at which nobody answers."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{unused.getsockname()[1]}/"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the standard places under a temporary folder, and reach local servers without a proxy."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    for variable in ("XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, str(folder / variable))
    monkeypatch.setattr(fashion_mnist, "DEBIAN_FOLDER", folder / "debian")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return folder


@pytest.fixture(scope="session")
def cases() -> dict[str, Any]:
    """Return the cases worked out by hand."""
    path = Path(__file__).parent.parent / "fairfal_app" / "cases.json"
    return json.loads(path.read_text())


@pytest.fixture
def cache_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the user's cache and data folders under a temporary one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache-home"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data-home"))
    return tmp_path / "cache-home"
