"""FairFAL on a SuperLink and SuperNodes over loopback: the same code, one process a message."""

import json
from pathlib import Path

import pandas as pd

from tests.integration.deployment import Deployment


def test_two_sites_label_and_train(project: Path, tmp_path: Path) -> None:
    config = {
        "data": {"clients": 2},
        "train": {"rounds": 1, "local-epochs": 1, "local-only-epochs": 1},
        "query": {"last-label-ratio": 0.2},
        "output": {"dir": str(tmp_path / "results")},
    }
    with Deployment(tmp_path / "deployment") as deployment:
        for index in range(2):
            deployment.start_node(
                f"node-{index}", f'partition-id={index} num-partitions=2 site="hospital-{index}"'
            )
        run = deployment.submit(project, config)
        status = deployment.wait([run], 400)
        log = deployment.log(run)
    assert status == {run: "finished:completed"}, log
    told = json.loads((tmp_path / "results" / "summary.json").read_text())
    assert told["status"] == "finished"
    assert not told["failures"]
    queries = pd.read_csv(tmp_path / "results" / "queries.csv")
    assert queries["site"].tolist() == ["hospital-0", "hospital-1"] * 2
    assert (queries["labelled"] == queries["label_round"] * told["budget_per_client"]).all()
    assert queries[queries["label_round"] == 2][["gamma", "d", "s"]].notna().all().all()
