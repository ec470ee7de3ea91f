"""A SuperLink and SuperNodes over loopback, each a process with a FLWR_HOME of its own."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import psutil
import pytest
import tomli_w

SCRIPTS = Path(sys.executable).parent
CONNECTION = "deployment"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until(happened: Callable[[], bool], what: str, seconds: float = 120.0) -> None:
    """Wait for something, or fail the test."""
    deadline = time.monotonic() + seconds
    while not happened():
        if time.monotonic() >= deadline:
            pytest.fail(f"{what}: not within {seconds:g} s")
        time.sleep(0.2)


class Deployment:
    """A SuperLink and its SuperNodes, alive inside a ``with`` block, which ends all that they started.

    Parameters
    ----------
    folder
        For the home and the log of each process.
    packages
        Put on the import path of all of them, where the app itself does not bring what it imports.
    """

    def __init__(self, folder: Path, packages: Path | None = None) -> None:
        self.folder = folder
        self.address = f"127.0.0.1:{free_port()}"
        self._environment = os.environ | {
            "PATH": f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}",
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.25",
        }
        if packages is not None:
            self._environment["PYTHONPATH"] = str(packages)
        self._processes: list[psutil.Process] = []
        self._nodes: dict[str, psutil.Process] = {}
        self._logs: dict[int, str] = {}

    def __enter__(self) -> Self:
        host, port = self.address.split(":")
        user = self.folder / "user"
        user.mkdir(parents=True)
        (user / "config.toml").write_text(
            f'[superlink.{CONNECTION}]\naddress = "{self.address}"\ninsecure = true\n'
        )
        self._start("flower-superlink", ["--host", host, "--port", port], "superlink")
        wait_until(lambda: listens(int(port)), "the SuperLink answers")
        return self

    def __exit__(self, *_: object) -> None:
        # Nodes first: each ends what it started. What a killed one left behind is among the processes.
        superlink, nodes = self._processes[:1], self._processes[1:]
        for group in (nodes, superlink):
            families = [child for process in group for child in children(process)]
            end(group)
            end(families)

    def start_node(self, name: str, settings: str) -> None:
        """Start a SuperNode with these settings for its ``--node-config``, once more if it was killed."""
        node = ["--superlink", self.address, "--host", "127.0.0.1", "--port", str(free_port())]
        self._nodes[name] = self._start("flower-supernode", [*node, "--node-config", settings], name)

    def kill_node(self, name: str) -> None:
        """Kill a SuperNode; a ClientApp at work goes on for a while, as it does when a node crashes."""
        node = self._nodes.pop(name)
        self._processes += children(node)
        node.kill()
        node.wait()

    def submit(self, app: Path, config: Mapping[str, Any]) -> int:
        """Start a run and return its id."""
        file = self.folder / f"run-{time.monotonic_ns()}.toml"
        file.write_text(tomli_w.dumps(config))
        answer = self._flwr("run", str(app), CONNECTION, "--run-config", str(file), "--format", "json")
        return int(json.loads(answer)["run-id"])

    def wait(self, runs: Sequence[int], seconds: float) -> dict[int, str]:
        """Wait until all runs have finished or ``seconds`` have passed, and return the status of each."""
        deadline = time.monotonic() + seconds
        for run in runs:  # the stream ends with its run, and costs nothing meanwhile
            with contextlib.suppress(subprocess.TimeoutExpired):
                left = max(1.0, deadline - time.monotonic())
                self._logs[run] = self._flwr("log", str(run), CONNECTION, "--stream", seconds=left)
        while True:
            listed = json.loads(self._flwr("ls", CONNECTION, "--format", "json"))["runs"]
            status = {int(run["run-id"]): str(run["status"]) for run in listed}
            statuses = {run: status[run] for run in runs}
            if all(each.startswith("finished") for each in statuses.values()) or time.monotonic() >= deadline:
                return statuses
            time.sleep(2)

    def log(self, run: int) -> str:
        """Return what a run has printed."""
        return self._logs.get(run) or self._flwr("log", str(run), CONNECTION, "--show")

    def _flwr(self, *arguments: str, seconds: float | None = None) -> str:
        return subprocess.run(
            [SCRIPTS / "flwr", *arguments],
            env=self._environment | {"FLWR_HOME": str(self.folder / "user")},
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=True,
            timeout=seconds,
        ).stdout

    def _start(self, command: str, arguments: list[str], name: str) -> psutil.Process:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        with (folder / "log").open("ab") as log:
            process = psutil.Popen(
                [SCRIPTS / command, "--insecure", *arguments],
                cwd=folder,
                env=self._environment | {"FLWR_HOME": str(folder / "home")},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._processes.append(process)
        return process


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def children(process: psutil.Process) -> list[psutil.Process]:
    try:
        found: list[psutil.Process] = process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return found


def end(processes: Sequence[psutil.Process]) -> None:
    """End processes, gently those that take it."""
    for action, seconds in ((psutil.Process.terminate, 20), (psutil.Process.kill, None)):
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                action(process)
        _, processes = psutil.wait_procs(processes, timeout=seconds)
