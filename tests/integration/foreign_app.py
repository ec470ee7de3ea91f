"""A Flower App that is not ours: its own model, its own ClientApp, and a strategy of ours for ``FedAvg``.

It imports ``fedraw`` and nothing else of the project; its clients do not even know of that.
"""

from pathlib import Path

from tests.integration.conftest import ROOT

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
versions = 2
report = ""
"""
SERVER = """
import json
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.serverapp import ServerApp

import fedraw

app = ServerApp()

@app.main()
def main(grid, context):
    config, events = context.run_config, []
    strategy = getattr(fedraw, config["strategy"])(
        buffer_size=3, concurrency=3, min_available_nodes=3, events=events
    )
    arrays = ArrayRecord({"weight": Array(np.zeros((3, 2), np.float32))})
    result = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=config["versions"])
    report = {
        "events": [event._asdict() for event in events],
        "failed": result.influence["failed"],
        "weight": result.arrays["weight"].numpy().tolist(),
    }
    Path(config["report"]).write_text(json.dumps(report))
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


def write_app(folder: Path, module: str, pyproject: str, server: str, client: str) -> Path:
    """Write a Flower App of three texts, whose components are in the package ``module``."""
    (folder / module).mkdir(parents=True)
    (folder / "pyproject.toml").write_text(pyproject)
    for name, text in (("__init__", ""), ("server", server), ("client", client)):
        (folder / module / f"{name}.py").write_text(text)
    return folder


def write_foreign_app(folder: Path) -> Path:
    return write_app(folder, "foreign", PYPROJECT, SERVER, CLIENT)


def install_fedraw(folder: Path) -> Path:
    """Make a folder for the import path that has ``fedraw``, and nothing else of ours."""
    folder.mkdir()
    (folder / "fedraw").symlink_to(ROOT / "fedraw")
    return folder
