"""What all data sets share of being found and downloaded."""

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from datasets.errors import DatasetNotFoundError
from datasets.sources.downloads import Origin, download_place, locate


def origin(url: str, fetch: Callable[[Path], None]) -> Origin:
    return Origin("Tiny", ("a", "b"), ("tiny",), "Ask its author.", lambda: url, fetch)


def test_processes_that_want_the_same_files_download_them_once(
    home: Path, tmp_path: Path, serving: Callable[[Path], AbstractContextManager[str]]
) -> None:
    fetched: list[Path] = []
    both_asked = threading.Barrier(2)

    def fetch(folder: Path) -> None:
        fetched.append(folder)
        time.sleep(0.2)
        (folder / "tiny").mkdir()
        for name in ("a", "b", "of no use"):
            (folder / "tiny" / name).write_text(name)

    def ask(url: str) -> list[Path]:
        both_asked.wait()
        return locate(origin(url, fetch), None)

    with serving(tmp_path) as url, ThreadPoolExecutor(2) as pool:
        first, second = pool.map(ask, [url, url])
    assert first == second == [download_place() / "tiny" / name for name in ("a", "b")]
    assert len(fetched) == 1
    assert sorted(path.name for path in download_place().rglob("*")) == ["a", "b", "tiny"]


def test_a_folder_that_may_not_be_entered_is_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tiny").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path / "tiny")
    with pytest.raises(DatasetNotFoundError) as failure:
        locate(origin("http://unused", lambda folder: None), tmp_path)
    assert str(failure.value) == (
        f"Tiny was not found. Looked in\n  {tmp_path / 'tiny'}: may not be read\nAsk its author."
    )


def test_a_root_that_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DatasetNotFoundError, match=rf"{tmp_path / 'file'}: no such folder"):
        locate(origin("http://unused", lambda folder: None), tmp_path / "file")


def test_a_place_that_cannot_be_written_is_the_reason(home: Path, tmp_path: Path, serving: Callable) -> None:
    download_place().parent.mkdir(parents=True)
    download_place().touch()
    with serving(tmp_path) as url, pytest.raises(DatasetNotFoundError, match=r"download to .*File exists"):
        locate(origin(url, lambda folder: None), None)
