"""A measure is one entry of one table: an entry made here is followed to every place that shows measures."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tomli_w

from federation import measures
from federation.config.run_config import default_run_config
from federation.measures import MEASURES, Measure
from rarefl.client_app import app as client_app
from rarefl.report.report import build
from rarefl.server_app import app as server_app
from rarefl.settings import read_words
from rarefl.sweep_plan import plan_runs
from rarefl.sweep_results import grid_table, result_rows
from tests.event_files import scalars
from tests.inprocess import run_in_process


def least_sure(probabilities: np.ndarray, labels: np.ndarray, rare_labels: Collection[int]) -> float:
    return float(probabilities.max(axis=1).min())


ENTRY = Measure(
    "least_sure", "least sure %", "least of the largest probabilities", least_sure, progress="least"
)
SMALL = {
    "data.clients": 2,
    "data.alpha": 0.5,
    "train.rounds": 1,
    "train.local-epochs": 1,
    "query.name": "random",
    "query.last-label-ratio": 0.1,
    "output.tensorboard": True,
}


@pytest.mark.parametrize("app", ["fairfal", "fedraw"])
def test_it_reaches_every_place(
    tmp_path: Path, app: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(measures, "MEASURES", (*MEASURES, ENTRY))
    folder = tmp_path / "run"
    settings = default_run_config() | SMALL | {"app": app, "output.dir": str(folder)}
    run_in_process(server_app, client_app, 2, settings, pictures=True)

    assert "least 0." in capsys.readouterr().out
    value = pd.read_csv(folder / "rounds.csv")["least_sure"].iloc[-1]
    assert 0.1 <= value < 1
    summary = json.loads((folder / "summary.json").read_text())
    result: dict[str, Any] = summary["result"] if app == "fedraw" else summary["label_rounds"][-1]
    assert result["least_sure"] == value
    assert 0.1 <= result["least_sure_last5"] < 1
    points = scalars(folder)
    assert points["measures/least_sure"][-1][1] == pytest.approx(value, abs=1e-5)
    assert points["final/least_sure"][0][1] == pytest.approx(value, abs=1e-5)

    shown = "least_sure_last5" if app == "fedraw" else "least_sure"
    preset = tmp_path / "preset.toml"
    preset.write_text(tomli_w.dumps({"seed": 1}))
    rows = result_rows([(plan_runs(read_words([str(preset)]), "1", tmp_path / "sweep")[0], summary)], [])
    assert rows[shown].iloc[-1] == pytest.approx(result[shown])
    assert grid_table(rows, [])[-1]["least sure %"] == f"{100 * result[shown]:.2f}"

    (means, *_) = build([folder]).parts[0].tables
    (row,) = (row for row in means.rows if any(cell.text == "least sure %" for cell in row))
    assert row[-1].text == f"{100 * result[shown]:.1f}"
