"""FairFAL through ``flwr run`` in Flower's Ray simulation."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import torch

from rarefl.superlink import LocalSuperLink, RunOutcome
from tests.integration.conftest import copy_project

SMALL: dict[str, Any] = {
    "data": {"clients": 3, "alpha": 0.5},
    "train": {"rounds": 2, "local-epochs": 1, "local-only-epochs": 2},
    "query": {"last-label-ratio": 0.2},
}


def submit(
    superlink: LocalSuperLink, project: Path, folder: Path, lines: list[str], workers: int = 2
) -> RunOutcome:
    file = folder.with_suffix(".toml")
    file.write_text(tomli_w.dumps(SMALL | {"output": {"dir": str(folder)}}))
    resources = f"num-supernodes=3 client-resources-num-cpus=1 init-args-num-cpus={workers}"
    return superlink.submit(project, file, resources, lines.append)


def test_same_seed_same_queries_same_arrays_with_one_and_two_workers(
    superlink_with_other_datasets: LocalSuperLink, project: Path, tmp_path: Path
) -> None:
    first, second = tmp_path / "two-workers", tmp_path / "one-worker"
    for folder, workers in ((first, 2), (second, 1)):
        lines: list[str] = []
        outcome = submit(superlink_with_other_datasets, project, folder, lines, workers)
        assert outcome.completed, "\n".join(lines)
        assert any("label round 2/2, " in line and ", round 2/2]" in line for line in lines)
        assert any(f"results are in {folder}" in line for line in lines)
    assert json.loads((first / "summary.json").read_text())["status"] == "finished"
    assert tomllib.loads((first / "config.toml").read_text())["train"]["rounds"] == 2
    for table in ("queries.csv", "rounds.csv"):
        assert (second / table).read_bytes() == (first / table).read_bytes()
    arrays, others = (torch.load(folder / "final.pt", weights_only=True) for folder in (first, second))
    assert all(torch.equal(arrays[key], others[key]) for key in arrays)


def test_a_dead_worker_ends_the_run_and_says_what_to_do(
    superlink_with_other_datasets: LocalSuperLink, tmp_path: Path
) -> None:
    project = copy_project(tmp_path / "rarefl")
    client = project / "fairfal_app" / "client_app.py"
    source = client.read_text()
    train = '    """Train on the labelled images."""\n'
    assert train in source
    dies = "    import os\n    if context.node_config['partition-id'] == 1:\n        os._exit(9)\n"
    client.write_text(source.replace(train, train + dies))
    lines: list[str] = []
    outcome = submit(superlink_with_other_datasets, project, tmp_path / "run", lines)
    assert outcome.status == "finished:failed"
    told = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert told["status"] == "failed"
    for part in ("DeadWorkerError", "the Ray worker that ran site-0", "client-resources-num-cpus"):
        assert part in told["reason"]
        assert any(part in line for line in lines)
    assert (tmp_path / "run" / "queries.csv").exists()


def test_workers_that_import_other_sources_end_the_run(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A SuperLink that was started in an edited copy of the app: Ray workers import that copy."""
    home = tmp_path / "home"
    copy = copy_project(tmp_path / "edited")
    (copy / "learning" / "device.py").open("a").write("# edited\n")
    monkeypatch.setattr(LocalSuperLink, "_empty", property(lambda _: copy))
    lines: list[str] = []
    with LocalSuperLink(home) as superlink:
        outcome = submit(superlink, project, tmp_path / "run", lines, workers=1)
    assert outcome.status == "finished:failed"
    reason = json.loads((tmp_path / "run" / "summary.json").read_text())["reason"]
    assert "SourceMismatchError" in reason
    assert str(copy) in reason
