"""A ServerApp whose SuperLink is gone ends, and its folder is free; one that Flower did not start goes on."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from federation.errors import RunFolderError
from federation.runs.orphans import starters
from federation.runs.run_folder import RunFolder

ROOT = Path(__file__).parents[3]
SERVER_APP = """
import sys, time
from federation.runs.run_folder import RunFolder

folder = RunFolder.create(sys.argv[1], "fairfal", "digits")
with folder.told_if_failed(lambda: {}):
    folder.write_summary({"seconds": 3.0})
    folder.append_round({"round": 1})
    time.sleep(120)
"""
SUPEREXEC = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[2]])
time.sleep(120)
"""

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a process by the words behind the Python interpreter; what is left is ended."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*words: str) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen([sys.executable, *words], cwd=ROOT))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def wait_until(happened: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not happened() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert happened()


@pytest.mark.parametrize("killed", ["superlink", "superexec"])
def test_it_ends_with_what_started_it(tmp_path: Path, start: Start, killed: str) -> None:
    (tmp_path / "flower-superexec").write_text(SUPEREXEC)
    run = tmp_path / "run"
    superlink = start("-c", "import time; time.sleep(120)")
    superexec = start(
        str(tmp_path / "flower-superexec"), SERVER_APP, str(run), "--parent-pid", str(superlink.pid)
    )
    wait_until((run / "rounds.csv").exists)
    (server_app,) = psutil.Process(superexec.pid).children()
    with pytest.raises(
        RunFolderError, match=rf"held by process {server_app.pid} on .* since .*`kill {server_app.pid}`"
    ):
        RunFolder.reopen(str(run), "fairfal", "digits")
    # It is not waited for, so it becomes a zombie, whose number is still taken.
    {"superlink": superlink, "superexec": superexec}[killed].kill()
    wait_until(lambda: not server_app.is_running() or server_app.status() == psutil.STATUS_ZOMBIE, 10.0)
    told = json.loads((run / "summary.json").read_text())
    assert (told["status"], told["seconds"]) == ("running", 3.0)
    assert "the SuperLink ended under it" in told["reason"]
    again = RunFolder.reopen(str(run), "fairfal", "digits")
    again.load_checkpoint()
    again.release()


def test_a_superexec_that_was_started_apart_belongs_to_no_superlink(tmp_path: Path) -> None:
    script = tmp_path / "flower-superexec"
    script.write_text(
        "import subprocess, sys\n"
        "told = 'from federation.runs.orphans import starters; print([p.pid for p in starters()])'\n"
        "subprocess.run([sys.executable, '-c', told])\n"
    )
    found = subprocess.run(
        [sys.executable, str(script), "--insecure"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert len(json.loads(found.stdout)) == 1


def test_a_process_that_flower_did_not_start_is_not_watched() -> None:
    assert starters() == []


def test_a_finished_run_stays_finished(tmp_path: Path) -> None:
    folder = RunFolder.create(str(tmp_path), "fairfal", "digits")
    folder.write_summary({}, "finished")
    folder._leave("the SuperLink ended under it")
    assert json.loads((tmp_path / "summary.json").read_text())["status"] == "finished"
    folder.release()
