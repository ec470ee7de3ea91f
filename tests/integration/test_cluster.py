"""Runs on a Ray cluster of two machines, which share the sources and no home, against runs on one."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import tomli_w
import torch

from rarefl.superlink import LocalSuperLink, RunOutcome
from tests.integration.conftest import copy_project, run_in_this_process
from tests.integration.deployment import wait_until
from tests.integration.ray_cluster import RayCluster

FAIRFAL: dict[str, Any] = {
    "data": {"clients": 3, "alpha": 0.5},
    "train": {"rounds": 2, "local-epochs": 1, "local-only-epochs": 2},
    "query": {"last-label-ratio": 0.2},
}
FEDRAW: dict[str, Any] = {
    "app": "fedraw",
    "data": {"clients": 3, "partition": "rare-holders", "rare-labels": "8,9", "imbalance": 50.0},
    "train": {"rounds": 6, "local-epochs": 1},
    "strategy": {"name": "fedraw", "buffer-size": 2, "concurrency": 3},
    "clock": {"delays": "rare-slow"},
    "evaluate": {"every": 1},
}
RESOURCES = "num-supernodes=3 client-resources-num-cpus=1"
# A client leaves a file named by the Ray node on which it works, and waits while a file tells it to.
WATCHED = """
        import time
        from pathlib import Path

        import ray

        marks = Path({marks!r})
        (marks / f"{message.metadata.message_type}@{ray.get_runtime_context().get_node_id()}").touch()
        request = message.content.config_records["config"]
        while request.get("server-round", 0) >= 4 and (marks / "hold").exists():
            (marks / "held").touch()
            time.sleep(0.02)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    with RayCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def superlink(cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSuperLink]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ADDRESS", cluster.address)
        with LocalSuperLink(tmp_path_factory.mktemp("home")) as superlink:
            yield superlink


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    marks = tmp_path / "marks"
    marks.mkdir()
    return marks


@pytest.fixture
def project(tmp_path: Path, marks: Path) -> Path:
    """The project, whose clients tell where they work."""
    project = copy_project(tmp_path / "rarefl")
    client = project / "rarefl" / "client_app.py"
    line = '        """Answer a message by the app of this run."""\n'
    source = client.read_text()
    assert line in source
    client.write_text(source.replace(line, line + WATCHED.replace("{marks!r}", repr(str(marks)))))
    return project


def submit(
    superlink: LocalSuperLink, project: Path, config: dict[str, Any], output: dict[str, str], lines: list[str]
) -> RunOutcome:
    file = project.with_suffix(".toml")
    file.write_text(tomli_w.dumps(config | {"output": output}))
    return superlink.submit(project, file, RESOURCES, lines.append)


def nodes(marks: Path, message_type: str) -> set[str]:
    return {file.name.partition("@")[2] for file in marks.glob(f"{message_type}@*")}


def assert_same(folder: Path, other: Path, *tables: str) -> None:
    for table in tables:
        assert (folder / table).read_bytes() == (other / table).read_bytes()
    arrays, others = (torch.load(each / "final.pt", weights_only=True) for each in (folder, other))
    assert arrays.keys() == others.keys()
    assert all(torch.equal(arrays[key], others[key]) for key in arrays)


def test_label_rounds_on_two_machines_are_those_on_one(
    cluster: RayCluster, superlink: LocalSuperLink, project: Path, marks: Path, tmp_path: Path
) -> None:
    lines: list[str] = []
    outcome = submit(superlink, project, FAIRFAL, {"dir": str(tmp_path / "two")}, lines)
    assert outcome.completed, "\n".join(lines)
    assert len(nodes(marks, "query.select")) == len(nodes(marks, "train")) == 2
    # Labels were bought on both machines, whose disks know nothing of each other.
    assert all(list(machine.clients.glob("*/site-*/labels.json")) for machine in cluster.machines)
    run_in_this_process(FAIRFAL, tmp_path / "one")
    assert pd.read_csv(tmp_path / "one" / "queries.csv")["labelled"].max() > 0
    assert_same(tmp_path / "two", tmp_path / "one", "queries.csv", "rounds.csv")


def test_a_machine_dies_and_the_run_goes_on_without_it(
    cluster: RayCluster, superlink: LocalSuperLink, project: Path, marks: Path, tmp_path: Path
) -> None:
    (marks / "hold").touch()
    lines: list[str] = []
    outcomes: list[RunOutcome] = []
    output = {"dir": str(tmp_path / "two")}
    thread = threading.Thread(
        target=lambda: outcomes.append(submit(superlink, project, FEDRAW, output, lines)), daemon=True
    )
    thread.start()
    wait_until(lambda: (marks / "held").exists() or bool(outcomes), "the hold", 400)
    assert len(nodes(marks, "train")) == 2, "\n".join(lines)
    cluster.machines[1].kill()
    (marks / "hold").unlink()
    thread.join(400)
    (outcome,) = outcomes
    assert outcome.status == "finished:failed"
    told = json.loads((tmp_path / "two" / "summary.json").read_text())
    assert told["status"] == "failed"
    assert "on the machines that are left" in told["reason"]

    outcome = submit(superlink, project, FEDRAW, {"resume": str(tmp_path / "two")}, lines)
    assert outcome.completed, "\n".join(lines)
    run_in_this_process(FEDRAW, tmp_path / "one")
    assert_same(tmp_path / "two", tmp_path / "one", "events.csv", "rounds.csv", "influence.csv")
