"""FairFAL on a SuperLink and SuperNodes over loopback: the same code, one process a message."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pandas as pd
import pytest
import tomli_w

SCRIPTS = Path(sys.executable).parent


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@contextmanager
def started(name: str, arguments: list[str], folder: Path, environment: dict[str, str]) -> Iterator[None]:
    folder.mkdir(parents=True)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [SCRIPTS / name, "--insecure", *arguments],
            cwd=folder,
            env=environment | {"FLWR_HOME": str(folder / "home")},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def test_two_sites_label_and_train(project: Path, tmp_path: Path) -> None:
    superlink, *nodes = free_ports(3)
    environment = os.environ | {
        "PATH": f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}",
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    }
    address = f"127.0.0.1:{superlink}"
    user = tmp_path / "user"
    user.mkdir()
    (user / "config.toml").write_text(f'[superlink.deployment]\naddress = "{address}"\ninsecure = true\n')
    config = {
        "data": {"clients": 2},
        "train": {"rounds": 1, "local-epochs": 1, "local-only-epochs": 1},
        "query": {"last-label-ratio": 0.2},
        "output": {"dir": str(tmp_path / "results")},
    }
    (tmp_path / "run.toml").write_text(tomli_w.dumps(config))

    def flwr(*arguments: str) -> str:
        return subprocess.run(
            [SCRIPTS / "flwr", *arguments],
            env=environment | {"FLWR_HOME": str(user)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    with ExitStack() as stack:
        link = ["--host", "127.0.0.1", "--port", str(superlink)]
        stack.enter_context(started("flower-superlink", link, tmp_path / "superlink", environment))
        wait_for(superlink)
        for index, port in enumerate(nodes):
            here = ["--superlink", address, "--host", "127.0.0.1", "--port", str(port)]
            here += ["--node-config", f'partition-id={index} num-partitions=2 site="hospital-{index}"']
            stack.enter_context(started("flower-supernode", here, tmp_path / f"node-{index}", environment))
        answer = flwr(
            "run", str(project), "deployment", "--run-config", str(tmp_path / "run.toml"), "--format", "json"
        )
        run_id = str(json.loads(answer)["run-id"])
        status = "pending"
        deadline = time.monotonic() + 400
        while not status.startswith("finished") and time.monotonic() < deadline:
            time.sleep(3)
            listed = flwr("ls", "deployment", "--run-id", run_id, "--format", "json")
            status = json.loads(listed)["runs"][0]["status"]
        log = flwr("log", run_id, "deployment", "--show")
    assert status == "finished:completed", log
    told = json.loads((tmp_path / "results" / "summary.json").read_text())
    assert told["status"] == "finished"
    assert not told["failures"]
    queries = pd.read_csv(tmp_path / "results" / "queries.csv")
    assert queries["site"].tolist() == ["hospital-0", "hospital-1"] * 2
    assert (queries["labelled"] == queries["label_round"] * told["budget_per_client"]).all()
    assert queries[queries["label_round"] == 2][["gamma", "d", "s"]].notna().all().all()


def wait_for(port: int) -> None:
    """Wait until something listens on a port of this machine."""
    for _ in range(300):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    pytest.fail(f"nothing listens on port {port}")
