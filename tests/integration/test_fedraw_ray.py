"""FedRAW through ``flwr run`` in Flower's Ray simulation, and in an app that is not ours."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import tomli_w
import torch

from rarefl.superlink import LocalSuperLink
from tests.integration.conftest import ROOT

SMALL: dict[str, Any] = {
    "app": "fedraw",
    "data": {"clients": 3, "partition": "rare-holders", "rare-labels": "8,9", "imbalance": 50.0},
    "train": {"rounds": 2, "local-epochs": 1},
    "strategy": {"name": "fedraw", "buffer-size": 2, "concurrency": 3},
    "clock": {"delays": "rare-slow"},
}
RESOURCES = "num-supernodes=3 client-resources-num-cpus=1 init-args-num-cpus={}"

PYPROJECT = """
[project]
name = "foreign-app"
version = "0.1.0"
[tool.flwr.app]
publisher = "tests"
[tool.flwr.app.components]
serverapp = "foreign.server:app"
clientapp = "foreign.client:app"
[tool.flwr.app.config]
coverage = false
strategy = "FedRAW"
"""
SERVER = """
import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.serverapp import ServerApp

import fedraw_app.strategies

app = ServerApp()

@app.main()
def main(grid, context):
    strategy = getattr(fedraw_app.strategies, context.run_config["strategy"])(
        buffer_size=2, concurrency=3, min_available_nodes=3
    )
    arrays = ArrayRecord({"weight": Array(np.zeros((3, 2), np.float32))})
    result = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=4)
    print(f"[version {len(result.train_metrics_clientapp)}/4] done", flush=True)
"""
CLIENT = """
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()

@app.train()
def train(message, context):
    weight = message.content["arrays"]["weight"].numpy() + 1
    metrics = {"num-examples": 5}
    if context.run_config["coverage"]:
        metrics["label-coverage"] = [1, 1, int(context.node_config["partition-id"] == 0)]
    content = RecordDict({"arrays": ArrayRecord({"weight": Array(weight)}), "metrics": MetricRecord(metrics)})
    return Message(content, reply_to=message)
"""


def test_same_seed_same_events_same_arrays_with_one_and_two_workers(
    superlink_with_other_datasets: LocalSuperLink, project: Path, tmp_path: Path
) -> None:
    for workers in (1, 2):
        folder = tmp_path / str(workers)
        file = folder.with_suffix(".toml")
        file.write_text(tomli_w.dumps(SMALL | {"output": {"dir": str(folder)}}))
        lines: list[str] = []
        outcome = superlink_with_other_datasets.submit(project, file, RESOURCES.format(workers), lines.append)
        assert outcome.completed, "\n".join(lines)
        assert any(line.startswith("[version 3/3]") for line in lines)
        assert json.loads((folder / "summary.json").read_text())["status"] == "finished"
    one, two = tmp_path / "1", tmp_path / "2"
    for table in ("events.csv", "rounds.csv", "influence.csv"):
        assert (one / table).read_bytes() == (two / table).read_bytes()
    assert (pd.read_csv(one / "events.csv")["kind"] == "aggregate").sum() == 6
    arrays, others = (torch.load(folder / "final.pt", weights_only=True) for folder in (one, two))
    assert all(torch.equal(arrays[key], others[key]) for key in arrays)


@pytest.fixture(scope="module")
def superlink_beside_fedraw(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSuperLink]:
    """A SuperLink in whose environment ``fedraw_app``, and nothing else of ours, is installed."""
    installed = tmp_path_factory.mktemp("installed")
    (installed / "fedraw_app").symlink_to(ROOT / "fedraw_app")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(installed))
        with LocalSuperLink(tmp_path_factory.mktemp("home")) as superlink:
            yield superlink


@pytest.mark.parametrize(("strategy", "coverage"), [("FedRAW", True), ("FedBuff", False)])
def test_a_foreign_app(
    superlink_beside_fedraw: LocalSuperLink, tmp_path: Path, strategy: str, coverage: bool
) -> None:
    app = tmp_path / "foreign-app"
    (app / "foreign").mkdir(parents=True)
    (app / "pyproject.toml").write_text(PYPROJECT)
    for name, text in (("__init__", ""), ("server", SERVER), ("client", CLIENT)):
        (app / "foreign" / f"{name}.py").write_text(text)
    file = tmp_path / "run.toml"
    file.write_text(tomli_w.dumps({"strategy": strategy, "coverage": coverage}))
    lines: list[str] = []
    outcome = superlink_beside_fedraw.submit(app, file, RESOURCES.format(2), lines.append)
    assert outcome.completed, "\n".join(lines)
    assert any(line.startswith("[version 4/4]") for line in lines)
