"""FedRAW on a SuperLink and SuperNodes: in an app that is not ours, and when a node is killed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import copy_project
from tests.integration.deployment import Deployment, wait_until
from tests.integration.foreign_app import install_fedraw, write_app, write_foreign_app

SITES = ("site-0", "site-1", "site-2")


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Three SuperNodes where ``fedraw_app``, and nothing else of ours, is installed."""
    folder = tmp_path_factory.mktemp("deployment")
    with Deployment(folder / "processes", install_fedraw(folder / "packages")) as deployment:
        for index, site in enumerate(SITES):
            deployment.start_node(site, f"partition-id={index} num-partitions=3")
        yield deployment


def of_kind(report: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [event for event in report["events"] if event["kind"] == kind]


def weights_of_versions(report: dict[str, Any]) -> list[list[float]]:
    """Return the weights of each version's updates, without the factor of FedBuff's staleness."""
    versions: dict[int, list[float]] = {}
    for event in of_kind(report, "aggregate"):
        versions.setdefault(event["version"], []).append(event["weight"] * (1 + event["staleness"]) ** 0.5)
    return [sorted(weights) for _, weights in sorted(versions.items())]


def test_fedavg_of_a_foreign_app_is_swapped(deployment: Deployment, tmp_path: Path) -> None:
    app = write_foreign_app(tmp_path / "foreign-app")
    variants = [(strategy, coverage) for strategy in ("FedRAW", "FedBuff") for coverage in (True, False)]
    # All at once: a message costs seconds of starting a process, during which the others wait.
    runs = {
        variant: deployment.submit(
            app,
            {"strategy": variant[0], "coverage": variant[1], "report": str(tmp_path / f"{i}.json")},
        )
        for i, variant in enumerate(variants)
    }
    status = deployment.wait(list(runs.values()), 300)
    logs = {variant: deployment.log(run) for variant, run in runs.items()}
    assert status == dict.fromkeys(runs.values(), "finished:completed"), logs
    reports = {
        variant: json.loads((tmp_path / f"{i}.json").read_text()) for i, variant in enumerate(variants)
    }
    for variant, report in reports.items():
        assert [event["version"] for event in of_kind(report, "publish")] == [1, 2], variant
        assert report["failed"] == {}, logs[variant]
        assert report["weight"][0][0] > 1
    # One of three clients has a label that the others lack: its rarity is 1, so it weighs 1 + 6 times as much
    # as each of the others.
    even, uneven = [pytest.approx([1 / 3] * 3)] * 2, [pytest.approx([1 / 9, 1 / 9, 7 / 9])] * 2
    for variant, report in reports.items():
        assert weights_of_versions(report) == (uneven if variant == ("FedRAW", True) else even), variant
    told = {variant: log.count("unknown sites have no rarity weight") for variant, log in logs.items()}
    assert told == {variant: int(variant == ("FedRAW", False)) for variant in variants}, logs


PYPROJECT = """
[project]
name = "named-sites"
version = "0.1.0"
[tool.flwr.app]
publisher = "tests"
[tool.flwr.app.components]
serverapp = "named.server:app"
clientapp = "named.client:app"
[tool.flwr.app.config]
folder = ""
"""
SERVER = """
import json
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.serverapp import ServerApp

from federation.messages.grid import ClientGrid
from federation.messages.hello import say_hello, wait_for_nodes
from federation.messages.connected import ConnectedGrid
from fedraw import FedRAW

app = ServerApp()

@app.main()
def main(grid, context):
    clients, events = ClientGrid(grid), []
    wait_for_nodes(clients, 3, 120.0)
    names = {site.node_id: site.name for site in say_hello(clients, 3, 120.0).sites}
    result = FedRAW(buffer_size=3, concurrency=3, sites=names, job_timeout=200.0, events=events).start(
        ConnectedGrid(clients, names),
        ArrayRecord({"weight": Array(np.zeros(1, np.float32))}),
        num_rounds=2,
    )
    report = {"events": [event._asdict() for event in events], "failed": result.influence["failed"]}
    (Path(context.run_config["folder"]) / "report.json").write_text(json.dumps(report))
"""
CLIENT = """
import time
from pathlib import Path

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from federation import records
from federation.runs.fingerprint import source_fingerprint

app = ClientApp()

@app.query("hello")
def hello(message, context):
    digest, root = source_fingerprint()
    part = context.node_config["partition-id"]
    identity = {records.SITE: f"site-{part}", records.PARTITION: part, records.DEVICE: "cpu"}
    identity |= {records.FINGERPRINT: digest, records.SOURCE: str(root)}
    holdings = {records.POOL_SIZE: 5, records.NUM_LABELLED: 5, records.LABEL_COVERAGE: [1, 1]}
    content = {records.CONFIG: ConfigRecord(identity), records.METRICS: MetricRecord(holdings)}
    return Message(RecordDict(content), reply_to=message)

@app.train()
def train(message, context):
    part, job = context.node_config["partition-id"], message.content["config"]["job"]
    folder = Path(context.run_config["folder"])
    (folder / f"site-{part}-job-{job}").touch()
    if (part, job) == (1, 0):
        time.sleep(600)
    while job > 1 and not (folder / "site-1-job-1").exists():  # two jobs, and then wait for the third site
        time.sleep(0.2)
    weight = message.content["arrays"]["weight"].numpy() + 1
    metrics = MetricRecord({"num-examples": 5, "label-coverage": [1, 1]})
    arrays = ArrayRecord({"weight": Array(weight)})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)
"""


def test_a_node_that_is_killed_at_work_is_one_failure_and_comes_back(
    deployment: Deployment, tmp_path: Path
) -> None:
    app = write_app(copy_project(tmp_path / "named-sites"), "named", PYPROJECT, SERVER, CLIENT)
    run = deployment.submit(app, {"folder": str(tmp_path)})
    wait_until((tmp_path / "site-1-job-0").exists, "site-1 is at work")
    deployment.kill_node("site-1")
    for site in ("site-0", "site-2"):
        wait_until((tmp_path / f"{site}-job-1").exists, f"{site} works on")
    deployment.start_node("site-1", "partition-id=1 num-partitions=3")
    status = deployment.wait([run], 300)
    log = deployment.log(run)
    assert status == {run: "finished:completed"}, log
    assert log.count("job 0 of site 'site-1' failed: ") == 1, log
    report = json.loads((tmp_path / "report.json").read_text())
    # Told by the SuperLink, or by the node that came back, whatever was first; well before the time-out.
    assert report["failed"] == {"node-gone": 1}, log
    (failure,) = of_kind(report, "fail")
    assert (failure["site"], failure["job"], failure["version"]) == ("site-1", 0, 0)
    # The others worked on meanwhile, and the last version has an update of all three again.
    before = {event["site"] for event in of_kind(report, "arrive") if event["time"] < failure["time"]}
    assert before == {"site-0", "site-2"}
    assert [event["version"] for event in of_kind(report, "publish")] == [1, 2]
    last = {event["site"]: event["job"] for event in of_kind(report, "aggregate") if event["version"] == 2}
    assert last.keys() == set(SITES)
    assert last["site-1"] >= 1
