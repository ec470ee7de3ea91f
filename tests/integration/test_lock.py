"""A SuperLink that is killed alone takes its ServerApp with it, so that the run can go on at once."""

import json
import os
import signal
import threading
import time
from pathlib import Path

import psutil
import tomli_w

from rarefl.superlink import HOME_MARK, LocalSuperLink
from tests.integration.deployment import wait_until

CONFIG = {
    "data": {"clients": 2, "alpha": 0.5},
    "train": {"rounds": 400, "local-epochs": 1},
    "query": {"name": "random", "label-ratio": 0.1, "last-label-ratio": 0.1},
    "evaluate": {"every": 1},
}
RESOURCES = "num-supernodes=2 client-resources-num-cpus=1 init-args-num-cpus=1"


def process_of(superlink: LocalSuperLink, command: str) -> psutil.Process:
    """Return the one process of a SuperLink with this command."""
    found = []
    for process in psutil.process_iter():
        try:
            words = " ".join(process.cmdline())
            if process.environ().get(HOME_MARK) == str(superlink.home) and command in words:
                found.append(process)
        except psutil.Error:
            continue
    (only,) = found
    return only


def test_a_run_whose_superlink_was_killed_alone_goes_on_within_seconds(
    project: Path, tmp_path: Path, tmp_path_factory: object
) -> None:
    folder, file, lines = tmp_path / "run", tmp_path / "run.toml", list[str]()
    with LocalSuperLink(tmp_path / "home") as superlink:
        file.write_text(tomli_w.dumps(CONFIG | {"output": {"dir": str(folder)}}))
        run = threading.Thread(target=superlink.submit, args=(project, file, RESOURCES, lines.append))
        run.start()
        wait_until(lambda: (folder / "rounds.csv").exists(), "the first round is done", 200.0)
        server_app = process_of(superlink, "flwr-simulation")
        os.kill(process_of(superlink, "flower-superlink").pid, signal.SIGKILL)
        killed = time.monotonic()
        wait_until(
            lambda: not server_app.is_running() or server_app.status() == psutil.STATUS_ZOMBIE,
            "the ServerApp ends",
            20.0,
        )
        assert time.monotonic() - killed < 10.0
        told = json.loads((folder / "summary.json").read_text())
        assert told["status"] == "running"
        assert "the SuperLink ended under it" in told["reason"]
        run.join()

        # The same home: what the killed SuperLink left behind is ended, and the next one starts.
        rows = len((folder / "rounds.csv").read_text().splitlines())
        file.write_text(tomli_w.dumps(CONFIG | {"output": {"resume": str(folder)}}))
        run = threading.Thread(target=superlink.submit, args=(project, file, RESOURCES, lines.append))
        run.start()
        wait_until(
            lambda: any("goes on from its checkpoint" in line for line in lines), "the run goes on", 60.0
        )
        wait_until(
            lambda: len((folder / "rounds.csv").read_text().splitlines()) > rows, "it comes further", 60.0
        )
        superlink.stop()
        run.join()
