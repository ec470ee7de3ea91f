"""Processes that decode side by side."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from datasets import decoding_pool
from datasets.decoding import decode_files
from datasets.decoding_pool import decode_all
from datasets.errors import DataError
from tests.datasets.images import damaged_files, save, save_noise


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return files for two processes: of two sizes of answers, some damaged."""
    monkeypatch.setattr(decoding_pool, "_cores", lambda: 2)
    monkeypatch.setattr(decoding_pool, "_WORTH_A_PROCESS", 20)
    monkeypatch.setattr(decoding_pool, "_CHUNK", 3)
    noise = [save_noise(tmp_path / f"noise é {i}.png", i) for i in range(30)]
    gray = [save(tmp_path / f"gray{i}.png", i, mode="L") for i in range(10)]
    return [*noise[:10], *damaged_files(tmp_path / "damaged").values(), *gray, *noise[10:]]


def test_processes_give_what_one_gives_in_order(files: list[Path]) -> None:
    for ours, theirs in zip(decode_all(files, 16), decode_files(files, 16), strict=True):
        assert isinstance(ours, str) == isinstance(theirs, str)
        assert np.array_equal(ours, theirs)


def test_few_files_start_no_process(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding_pool, "_Worker", None)
    assert len(list(decode_all(files[:20], 8))) == 20
    with pytest.raises(TypeError):
        list(decode_all(files[:21], 8))


def test_a_process_that_is_killed_is_an_error_that_tells_where(
    files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = record(monkeypatch)
    results = decode_all(files, 8)
    next(results)
    workers[0]._process.send_signal(signal.SIGKILL)
    with pytest.raises(DataError, match=r"exit status -9 at one of the files .*\.png to .*memory"):
        list(results)
    assert [worker._process.poll() for worker in workers] == [-9, -9]


def test_no_process_is_left_when_reading_stops(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    workers = record(monkeypatch)
    results = decode_all(files, 8)
    next(results)
    assert [os.path.exists(f"/proc/{worker._process.pid}") for worker in workers] == [True, True]
    results.close()
    assert [worker._process.poll() for worker in workers] == [-9, -9]


def record(monkeypatch: pytest.MonkeyPatch) -> list[decoding_pool._Worker]:
    workers: list[decoding_pool._Worker] = []

    class Recorded(decoding_pool._Worker):
        def __init__(self) -> None:
            super().__init__()
            workers.append(self)

    monkeypatch.setattr(decoding_pool, "_Worker", Recorded)
    return workers
