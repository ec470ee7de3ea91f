"""Tables against numbers worked out by hand."""

from pathlib import Path
from typing import Any

import pytest

from rarefl.settings import read_words
from rarefl.sweep_plan import PlannedRun, plan_runs
from rarefl.sweep_results import grid_table, markdown_table, participation_lines, result_rows

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
    return plan_runs(read_words([str(preset), "query.name=random,fairfal"]), "1-3", tmp_path / "out")


def test_a_row_per_run_and_label_round(runs: list[PlannedRun]) -> None:
    rows = result_rows([(runs[0], summary(0.5, 0.6)), (runs[1], summary(0.7))], KEYS)

    assert list(rows["run"]) == [runs[0].name, runs[0].name, runs[1].name]
    assert list(rows["query.name"]) == ["random", "random", "fairfal"]
    assert list(rows["label_round"]) == [1, 2, 1]
    assert list(rows["accuracy"]) == [0.5, 0.6, 0.7]
    assert list(rows.columns) == [
        *("run", "query.name", "seed", "label_round", "label_ratio", "labelled", "accuracy"),
        *("balanced_accuracy", "rare_accuracy", "common_accuracy", "macro_f1", "loss", "accuracy_last5"),
        *("rare_accuracy_last5", "common_accuracy_last5", "rare_label_share", "aggregated"),
        *("replaced_per_flush", "rare_share_of_clients", "rare_share_of_updates", "rare_share_of_weight"),
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
        "rare-label accuracy %": "50.00 ± 0.00",
        "macro F1 %": "50.00 ± 0.00",
        "rare labels bought %": "5.00 ± 0.00",
        "seconds": "20",
        "seeds": "3",
    }
    assert [cells["label ratio"] for cells in table] == ["0.1", "0.2", "0.1"]
    assert (table[2]["accuracy %"], table[2]["seconds"], table[2]["seeds"]) == ("77.00", "33", "1")


def test_a_measure_that_no_run_has_is_a_dash(runs: list[PlannedRun]) -> None:
    table = grid_table(result_rows([(runs[0], summary(0.5, rare=None))], KEYS), KEYS)

    assert table[0]["rare-label accuracy %"] == "-"


def test_no_finished_run_is_no_row(runs: list[PlannedRun]) -> None:
    assert grid_table(result_rows([], KEYS), KEYS) == []
    assert len(result_rows([(runs[0], {"status": "finished"})], KEYS)) == 0


def test_markdown() -> None:
    assert markdown_table([{"a": "1", "b": "x|y"}]) == "| a | b |\n| ---: | ---: |\n| 1 | x\\|y |"


def training(accuracy: float, rare: float, reached: dict[str, float | None]) -> dict[str, Any]:
    result = {"version": 30, "time": 50.0, "accuracy": 0.9, "replaced_per_flush": 0.5}
    result |= {"accuracy_last5": accuracy, "rare_accuracy_last5": rare, "common_accuracy_last5": 0.95}
    result |= {"rare_share_of_updates": 0.08, "rare_share_of_weight": 0.2}
    return {"status": "finished", "seconds": 10.0, "result": result, "time_to_accuracy": reached}


def test_a_training_is_one_row_and_times_go_to_the_highest_accuracy_that_all_reached(
    runs: list[PlannedRun],
) -> None:
    finished = [
        (runs[0], training(0.80, 0.4, {"0.70": 3.0, "0.75": 10.0, "0.80": None})),
        (runs[1], training(0.90, 0.8, {"0.70": 4.0, "0.75": 20.0, "0.80": 30.0})),
        (runs[2], training(0.84, 0.5, {"0.70": 5.0, "0.75": 12.0, "0.80": 40.0})),
    ]
    rows = result_rows(finished, KEYS)
    assert list(rows["time_to_0.75"]) == [10.0, 20.0, 12.0]
    assert rows["time_to_0.80"].isna().tolist() == [True, False, False]
    table = grid_table(rows, KEYS)
    assert table[0] == {
        "query.name": "random",
        "accuracy %": "82.00 ± 2.83",
        "rare-label accuracy %": "45.00 ± 7.07",
        "common-label accuracy %": "95.00 ± 0.00",
        "participations of rare sites %": "8.00 ± 0.00",
        "weight of rare sites %": "20.00 ± 0.00",
        "updates replaced a flush": "0.50 ± 0.00",
        "time to 75 %": "11.00 ± 1.41",
        "seconds": "10",
        "seeds": "2",
    }
    assert (table[1]["query.name"], table[1]["time to 75 %"]) == ("fairfal", "20.00")
    assert len(grid_table(result_rows(finished, []), [])) == 1


def test_runs_of_both_apps_have_one_row_each(runs: list[PlannedRun]) -> None:
    rows = result_rows([(runs[0], training(0.8, 0.4, {})), (runs[1], summary(0.5, 0.6))], KEYS)
    assert len(rows) == 2
    assert rows["accuracy"].tolist() == [0.9, 0.6]


def test_a_line_a_run_in_which_a_client_was_left_out(runs: list[PlannedRun]) -> None:
    whole = {"asked": 4, "answered": 4, "left_out": []}
    left_out = {"asked": 4, "answered": 3, "left_out": [{"site": "site-3", "label_round": 2}]}
    finished = [
        (runs[0], summary(0.5)),
        (runs[1], summary(0.5) | {"participation": whole}),
        (runs[2], summary(0.5) | {"participation": left_out}),
    ]
    assert participation_lines(finished) == [
        f"{runs[2].name}: asked 4 times, answered 3; site-3 left out of label round 2"
    ]
