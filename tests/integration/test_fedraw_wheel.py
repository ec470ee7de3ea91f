"""The library as others get it: its wheel in an environment without torch, under apps that are not ours."""

import json
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.integration.conftest import ROOT
from tests.integration.deployment import Deployment
from tests.integration.foreign_app import write_app

PYPROJECT = """
[project]
name = "foreign-{name}"
version = "0.1.0"
[tool.flwr.app]
publisher = "tests"
[tool.flwr.app.components]
serverapp = "{name}.server:app"
clientapp = "{name}.client:app"
[tool.flwr.app.config]
report = ""
"""
FLOWERS = "from flwr.serverapp.strategy import FedAvg"
OURS = "from fedraw import FedRAW as FedAvg"
SERVER = """
import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()

@app.main()
def main(grid, context):
    strategy = FedAvg(fraction_evaluate=0.0)
    model = {"weight": np.zeros((2, 3), np.float32), "bias": np.zeros(2, np.float32)}
    arrays = ArrayRecord({key: Array(value) for key, value in model.items()})
    result = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=2)
    report = {
        "strategy": f"{type(strategy).__module__}.{type(strategy).__name__}",
        "file": sys.modules[type(strategy).__module__].__file__,
        "torch": importlib.util.find_spec("torch") is not None,
        "versions": sorted(result.train_metrics_clientapp),
        "loss": [metrics["loss"] for _, metrics in sorted(result.train_metrics_clientapp.items())],
        "moved": float(abs(result.arrays["weight"].numpy()).sum()),
    }
    Path(context.run_config["report"]).write_text(json.dumps(report))
"""
WITH_NUMPY = """
import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()

@app.train()
def train(message, context):
    model = {key: array.numpy() for key, array in message.content["arrays"].items()}
    trained = {key: Array(value + np.float32(0.5)) for key, value in model.items()}
    metrics = MetricRecord({"num-examples": 4, "loss": 1.0})
    return Message(RecordDict({"arrays": ArrayRecord(trained), "metrics": metrics}), reply_to=message)
"""
WITH_TORCH = """
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()

@app.train()
def train(msg: Message, context: Context):
    model = torch.nn.Linear(3, 2)
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    features = torch.eye(3)
    labels = torch.tensor([0, 1, int(context.node_config["partition-id"])])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(features), labels)
        loss.backward()
        optimizer.step()
    model_record = ArrayRecord(model.state_dict())
    metric_record = MetricRecord({"loss": loss.item(), "num-examples": 3})
    content = RecordDict({"arrays": model_record, "metrics": metric_record})
    return Message(content=content, reply_to=msg)
"""


class ServerElsewhere(Deployment):
    """A deployment whose SuperLink, and with it each ServerApp, runs in an environment of its own."""

    def __init__(self, folder: Path, environment: Path) -> None:
        super().__init__(folder)
        self.scripts = environment / "bin"

    def _start(self, command: str, arguments: list[str], name: str) -> psutil.Process:
        if command != "flower-superlink":
            return super()._start(command, arguments, name)
        usual = self._environment
        self._environment = usual | {"PATH": f"{self.scripts}:{usual['PATH']}"}
        process = super()._start(str(self.scripts / command), arguments, name)
        self._environment = usual
        return process


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the library's folder, which is copied, so that nothing is written into it."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT / "fedraw", folder / "fedraw", ignore=shutil.ignore_patterns("__pycache__"))
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder, folder / "fedraw"]
    subprocess.run(build, check=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def without_torch(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and what it asks for."""
    environment = tmp_path_factory.mktemp("environment")
    venv.create(environment, with_pip=True)
    subprocess.run([environment / "bin/pip", "install", "--quiet", wheel], check=True)
    return environment


@pytest.fixture(scope="module")
def deployment(without_torch: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("deployment")
    with ServerElsewhere(folder / "processes", without_torch) as deployment:
        for index in range(2):
            deployment.start_node(f"site-{index}", f"partition-id={index} num-partitions=2")
        yield deployment


def test_the_wheel_holds_the_library_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = [name for name in names if name.endswith("METADATA")]
        needed = [line for line in archive.read(metadata).decode().splitlines() if "Requires-Dist" in line]
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "fedraw").rglob("*.py")}
    packed = {name for name in names if ".dist-info/" not in name}
    assert packed == modules | {"fedraw/py.typed"}
    assert sorted(line.split()[1].split("<")[0].split(">")[0] for line in needed) == ["flwr", "numpy"]


def test_the_library_is_imported_without_torch(without_torch: Path, tmp_path: Path) -> None:
    def python(code: str) -> subprocess.CompletedProcess[str]:
        command = [without_torch / "bin/python", "-c", code]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    names = "FedRAW, FedBuff, FedAsync, CA2FL, ACE, ACED, FedStaleWeight, VirtualClock, WallClock"
    imported = python(f"from fedraw import {names}\nimport fedraw; print(fedraw.__file__)")
    assert imported.stdout.startswith(str(without_torch)), imported.stderr
    assert "No module named 'torch'" in python("import torch").stderr


def test_foreign_apps_run_with_one_line_changed(
    deployment: Deployment, without_torch: Path, tmp_path: Path
) -> None:
    server = SERVER.replace(FLOWERS, OURS)
    assert sum(a != b for a, b in zip(SERVER.splitlines(), server.splitlines(), strict=True)) == 1
    runs = {}
    for name, client in (("numpyapp", WITH_NUMPY), ("torchapp", WITH_TORCH)):
        app = write_app(tmp_path / name, name, PYPROJECT.replace("{name}", name), server, client)
        runs[name] = deployment.submit(app, {"report": str(tmp_path / f"{name}.json")})
    status = deployment.wait(list(runs.values()), 300)
    logs = "\n".join(deployment.log(run) for run in runs.values())
    assert set(status.values()) == {"finished:completed"}, logs
    reports = {name: json.loads((tmp_path / f"{name}.json").read_text()) for name in runs}
    for report in reports.values():
        assert report["strategy"] == "fedraw.strategies.fedraw.FedRAW"
        assert Path(report["file"]).is_relative_to(without_torch)
        assert not report["torch"]
        assert report["versions"] == [1, 2]
        assert report["moved"] > 0
    first, second = reports["torchapp"]["loss"]
    assert second < first
