"""Processes that decode side by side."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest

from datasets.errors import DataError
from datasets.images import decoding_pool
from datasets.images.decoding import decode_files
from datasets.images.decoding_pool import decode_all
from tests.datasets.written_images import damaged_files, save, save_noise

ROOT = Path(__file__).parents[3]


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
    with pytest.raises(DataError, match=r"exit status -9 at one of the files .*memory") as error:
        list(results)
    # Which files it had is a matter of time, and some of them are damaged JPEGs.
    chunks = [files[start : start + 3] for start in range(0, len(files), 3)]
    assert any(f" {chunk[0]} to {chunk[-1]}. " in str(error.value) for chunk in chunks)
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


ASK = """
import sys
from pathlib import Path
from datasets.images import decoding_pool as pool
pool._cores, pool._WORTH_A_PROCESS = (lambda: 2), 1
start = pool._Worker.__init__
def told(self):
    start(self)
    print(self._process.pid, flush=True)
pool._Worker.__init__ = told
results = pool.decode_all([Path(sys.argv[1])] * 100_000, 16)
print(len(next(results)), flush=True)
for result in results:
    pass
"""


def test_processes_end_when_the_one_that_asks_is_killed(tmp_path: Path) -> None:
    path = save_noise(tmp_path / "a.png", 1)
    asking = subprocess.Popen(
        [sys.executable, "-c", ASK, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert asking.stdout is not None
    first, second, channels = (int(asking.stdout.readline()) for _ in range(3))
    assert channels == 3
    workers = [psutil.Process(first), psutil.Process(second)]
    asking.kill()
    asking.communicate()
    _, alive = psutil.wait_procs(workers, timeout=60)
    assert alive == []
