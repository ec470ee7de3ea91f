"""``rarefl run`` as a user types it: it ends with results, with one line, or so that it can go on."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.integration.conftest import ROOT
from tests.integration.deployment import CONNECTION, Deployment

# A test that runs in the background inherits that Ctrl-C is ignored.
MAIN = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from rarefl.cli import main; main()"
)
TINY = ("app=fedraw", "data.clients=2", "train.local-epochs=1", "evaluate.every=1")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment in which the user has nothing yet; the mark finds what is left behind."""
    return os.environ | {"HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "RAREFL_TEST": str(tmp_path)}


def rarefl(arguments: tuple[str, ...], environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", MAIN, *arguments],
        env=environment,
        cwd=environment["HOME"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def left_behind(environment: dict[str, str]) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("RAREFL_TEST") == environment["RAREFL_TEST"]:
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_ctrl_c_leaves_a_run_that_goes_on_to_its_results(environment: dict[str, str], tmp_path: Path) -> None:
    run = rarefl(("run", *TINY, "train.rounds=15"), environment)
    assert run.stdout is not None
    lines = []
    for line in run.stdout:
        lines.append(line)
        if line.startswith("[round "):
            run.send_signal(signal.SIGINT)
            break
    rest, errors = run.communicate()
    told = "".join(lines) + rest

    assert run.returncode == 130, told + errors
    (folder,) = (tmp_path / "rarefl" / "runs").iterdir()
    assert f"stopped; this goes on from the last checkpoint: rarefl run --resume {folder}" in told
    assert "INFO" not in told
    assert "ClientAppActor" not in told
    assert "Starting Flower Simulation" in (folder / "flower.log").read_text()
    assert left_behind(environment) == []

    run = rarefl(("run", "--resume", str(folder), "output.quiet=true"), environment)
    told, errors = run.communicate()

    assert run.returncode == 0, told + errors
    assert errors == ""
    assert "from its checkpoint" in told
    assert "| accuracy" in told
    assert told.splitlines()[-1] == f"results are in {folder}"
    assert json.loads((folder / "summary.json").read_text())["status"] == "finished"
    assert left_behind(environment) == []


def test_a_run_that_fails_says_why_in_one_line(environment: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run = rarefl(
        ("run", *TINY, "train.rounds=2", "train.lr=1e30", f"output.dir={folder}"),
        environment,
    )
    told, errors = run.communicate()

    assert run.returncode == 1, told + errors
    (line,) = errors.splitlines()
    assert line.startswith("error: ")
    assert "train.lr" in line
    assert str(folder / "flower.log") in line
    assert "Traceback" not in told
    assert json.loads((folder / "summary.json").read_text())["status"] != "finished"
    assert left_behind(environment) == []


def test_a_run_on_supernodes_that_are_there(environment: dict[str, str], tmp_path: Path) -> None:
    with Deployment(tmp_path / "deployment") as deployment:
        for node in range(2):
            deployment.start_node(f"node-{node}", f"partition-id={node} num-partitions=2")
        environment["FLWR_HOME"] = str(tmp_path / "deployment" / "user")
        folder = tmp_path / "run"
        settings = (*TINY, "train.rounds=1", f"output.dir={folder}", "--federation", CONNECTION)
        run = rarefl(("run", *settings), environment)
        told, errors = run.communicate()

    assert run.returncode == 0, told + errors
    assert "[round 1/1] " in told
    assert f"results are in {folder}" in told
    assert "INFO" not in told
