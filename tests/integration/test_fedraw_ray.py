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
from tests.integration.foreign_app import install_fedraw, write_foreign_app

SMALL: dict[str, Any] = {
    "app": "fedraw",
    "data": {"clients": 3, "partition": "rare-holders", "rare-labels": "8,9", "imbalance": 50.0},
    "train": {"rounds": 2, "local-epochs": 1},
    "strategy": {"name": "fedraw", "buffer-size": 2, "concurrency": 3},
    "clock": {"delays": "rare-slow"},
}
RESOURCES = "num-supernodes=3 client-resources-num-cpus=1 init-args-num-cpus={}"


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
    installed = install_fedraw(tmp_path_factory.mktemp("installed") / "packages")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(installed))
        with LocalSuperLink(tmp_path_factory.mktemp("home")) as superlink:
            yield superlink


@pytest.mark.parametrize(("strategy", "coverage"), [("FedRAW", True), ("FedBuff", False)])
def test_a_foreign_app(
    superlink_beside_fedraw: LocalSuperLink, tmp_path: Path, strategy: str, coverage: bool
) -> None:
    app = write_foreign_app(tmp_path / "foreign-app")
    report, file = tmp_path / "report.json", tmp_path / "run.toml"
    file.write_text(tomli_w.dumps({"strategy": strategy, "coverage": coverage, "report": str(report)}))
    lines: list[str] = []
    outcome = superlink_beside_fedraw.submit(app, file, RESOURCES.format(2), lines.append)
    assert outcome.completed, "\n".join(lines)
    events = json.loads(report.read_text())["events"]
    assert [event["version"] for event in events if event["kind"] == "publish"] == [1, 2]
