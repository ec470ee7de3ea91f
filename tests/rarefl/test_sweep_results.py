"""Tables against numbers worked out by hand."""

from pathlib import Path
from typing import Any

import pytest

from rarefl.sweep_plan import PlannedRun, plan_runs
from rarefl.sweep_results import grid_table, markdown_table, result_rows

KEYS = ["query.name"]


def summary(*accuracies: float, seconds: float = 10.0, rare: float | None = 0.5) -> dict[str, Any]:
    rounds = [
        {
            "label_round": place,
            "label_ratio": place / 10,
            "labelled": 100 * place,
            "accuracy": accuracy,
            "balanced_accuracy": accuracy - 0.1,
            "rare_accuracy": rare,
            "macro_f1": 0.5,
            "loss": 1.0,
            "accuracy_last5": accuracy,
            "rare_label_share": 0.05,
        }
        for place, accuracy in enumerate(accuracies, start=1)
    ]
    return {"status": "finished", "seconds": seconds, "label_rounds": rounds}


@pytest.fixture
def runs(tmp_path: Path) -> list[PlannedRun]:
    preset = tmp_path / "preset.toml"
    preset.write_text("seed = 1\n")
    return plan_runs(preset, ["query.name=random,fairfal"], "1-3", tmp_path / "out")


def test_a_row_per_run_and_label_round(runs: list[PlannedRun]) -> None:
    rows = result_rows([(runs[0], summary(0.5, 0.6)), (runs[1], summary(0.7))], KEYS)

    assert list(rows["run"]) == [runs[0].name, runs[0].name, runs[1].name]
    assert list(rows["query.name"]) == ["random", "random", "fairfal"]
    assert list(rows["label_round"]) == [1, 2, 1]
    assert list(rows["accuracy"]) == [0.5, 0.6, 0.7]
    assert list(rows.columns) == [
        *("run", "query.name", "seed", "label_round", "label_ratio", "labelled", "accuracy"),
        *("balanced_accuracy", "rare_accuracy", "macro_f1", "loss", "accuracy_last5", "rare_label_share"),
        "seconds",
    ]


def test_mean_and_deviation_over_seeds(runs: list[PlannedRun]) -> None:
    # random: 80, 84 and 91 % have mean 85; squares 25 + 1 + 36 = 62; sqrt(62 / 2) = 5.568
    accuracies = {1: 0.80, 2: 0.84, 3: 0.91}
    finished = [
        (run, summary(accuracies[run.seed], 0.9, seconds=10.0 * run.seed))
        for run in runs
        if run.varied["query.name"] == "random"
    ]
    fairfal = next(run for run in runs if run.varied["query.name"] == "fairfal")
    finished.append((fairfal, summary(0.77, seconds=33.4)))

    table = grid_table(result_rows(finished, KEYS), KEYS)

    assert table[0] == {
        "query.name": "random",
        "label ratio": "0.1",
        "accuracy %": "85.00 ± 5.57",
        "balanced accuracy %": "75.00 ± 5.57",
        "rare accuracy %": "50.00 ± 0.00",
        "rare labels bought %": "5.00 ± 0.00",
        "seconds": "20",
        "seeds": "3",
    }
    assert [cells["label ratio"] for cells in table] == ["0.1", "0.2", "0.1"]
    assert (table[2]["accuracy %"], table[2]["seconds"], table[2]["seeds"]) == ("77.00", "33", "1")


def test_a_measure_that_no_run_has_is_a_dash(runs: list[PlannedRun]) -> None:
    table = grid_table(result_rows([(runs[0], summary(0.5, rare=None))], KEYS), KEYS)

    assert table[0]["rare accuracy %"] == "-"


def test_no_finished_run_is_no_row(runs: list[PlannedRun]) -> None:
    assert grid_table(result_rows([], KEYS), KEYS) == []
    assert len(result_rows([(runs[0], {"status": "finished"})], KEYS)) == 0


def test_markdown() -> None:
    assert markdown_table([{"a": "1", "b": "x|y"}]) == "| a | b |\n| ---: | ---: |\n| 1 | x\\|y |"
