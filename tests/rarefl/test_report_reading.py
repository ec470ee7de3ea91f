"""What is found in folders and files, and what is said of the rest."""

import json
import tomllib
from pathlib import Path

import pytest
import tomli_w

from rarefl.report.reading import read
from rarefl.report.report import build
from rarefl.report.runs import ReportError
from rarefl.report.sections import method_names, sections
from tests.rarefl.report_runs import label_rounds, training

REACHED: dict[str, float | None] = {"0.50": 3.0}


def test_runs_are_found_at_any_depth_and_others_are_named(tmp_path: Path) -> None:
    label_rounds(tmp_path / "a" / "b" / "run", "random", 1, [0.5])
    (label_rounds(tmp_path / "half", "random", 2, [0.5]) / "config.toml").unlink()
    (label_rounds(tmp_path / "torn", "random", 2, [0.5]) / "summary.json").write_text('{"status": ')
    (label_rounds(tmp_path / "bare", "random", 2, [0.5]) / "summary.json").unlink()
    (label_rounds(tmp_path / "else", "random", 2, [0.5]) / "config.toml").write_text("app = 'other'\n")
    failed = label_rounds(tmp_path / "failed", "random", 3, [0.5]) / "summary.json"
    failed.write_text(json.dumps({"status": "failed", "reason": "NodesMissingError:\n 2 of 5"}))
    diverged = label_rounds(tmp_path / "diverged", "random", 3, [0.5]) / "summary.json"
    diverged.write_text(json.dumps({"status": "diverged", "reason": "DivergedError: round 7"}))
    killed = label_rounds(tmp_path / "killed", "random", 4, [0.5]) / "summary.json"
    killed.write_text(json.dumps({"status": "running"}))
    empty = label_rounds(tmp_path / "none", "random", 5, [])
    label_rounds(tmp_path / ".hidden", "random", 6, [0.5])
    (tmp_path / "notes").mkdir()

    found = read([tmp_path])

    assert [Path(run.name).name for run in found.runs] == ["run"]
    told = {Path(name).name: reason for name, reason in found.left_out.items()}
    assert set(told) == {"half", "torn", "bare", "else", "failed", "diverged", "killed", empty.name}
    assert told["half"] == "no run: config.toml is missing"
    assert "summary.json cannot be read" in told["torn"]
    assert told["bare"] == "no run: summary.json is missing"
    assert "app = 'other'" in told["else"]
    assert told["failed"] == "failed: NodesMissingError: 2 of 5"
    assert told["diverged"] == "its model diverged: DivergedError: round 7"
    assert told["killed"] == "not finished: it is still running, or was killed"
    assert "no results" in told["none"]


def test_nothing_to_report_is_an_error_that_says_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "results.csv").write_text("run\n")
    with pytest.raises(ReportError, match=r"no finished run.*no config.toml.*name it: .*results.csv"):
        read([tmp_path])
    with pytest.raises(ReportError, match="missing does not exist"):
        read([tmp_path / "missing"])


def test_a_folder_given_twice_counts_once(tmp_path: Path) -> None:
    label_rounds(tmp_path / "run", "random", 1, [0.5])
    assert len(read([tmp_path, tmp_path / "run"]).runs) == 1


def test_a_cut_line_is_left_out_with_a_warning(tmp_path: Path) -> None:
    run = label_rounds(tmp_path / "run", "random", 1, [0.5])
    text = "label_round,site,query_model,class_0,class_1\n1,a,,3,4\n2,a,,3,1"
    (run / "queries.csv").write_text(text)
    found = read([tmp_path])
    table = found.table(found.runs[0], "queries.csv", ["label_round"])
    assert table is not None
    assert table["label_round"].tolist() == [1]
    assert "queries.csv: the last line has no end" in found.warnings[0]
    (run / "queries.csv").write_text(text + "5\n")
    assert len(read([tmp_path]).table(found.runs[0], "queries.csv", ["label_round"])) == 2  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "No columns"),
        ("site,query_model,class_0\n", "label_round"),
        ("label_round,site,query_model,class_0\n1,a,,x\n", "class_0 has a cell that is no number"),
        ("label_round,site,query_model,class_0\n1,a,,2,3,4,5\n1,a,,2\n1,a,,2,3,4,5,6\n", "queries.csv"),
    ],
)
def test_a_table_that_is_none_is_a_warning(tmp_path: Path, text: str, said: str) -> None:
    (label_rounds(tmp_path / "run", "random", 1, [0.5]) / "queries.csv").write_text(text)
    report = build([tmp_path])
    assert any(said in warning and "queries.csv cannot be used" in warning for warning in report.warnings)
    assert [picture.slug for picture in report.parts[0].pictures] == ["digits-label-rounds-curves"]


def test_missing_tables_are_told_once(tmp_path: Path) -> None:
    for seed in (1, 2):
        label_rounds(tmp_path / str(seed), "random", seed, [0.5])
    report = build([tmp_path])
    assert sum("2 of 2 runs have no queries.csv" in warning for warning in report.warnings) == 1


def test_who_was_left_out_of_a_query_is_a_note(tmp_path: Path) -> None:
    left_out = [{"site": "site-3", "label_round": 2, "what": "query.select", "reason": "killed"}]
    for seed, answered, missing in ((1, 5, []), (2, 4, left_out), (3, 5, [])):
        told = {"asked": 5, "answered": answered, "left_out": missing}
        label_rounds(tmp_path / str(seed), "random", seed, [0.5], participation=told)
    label_rounds(tmp_path / "old", "random", 4, [0.5])
    notes = build([tmp_path]).parts[0].notes
    assert "random, seed 2: asked 5 times, answered 4; site-3 left out of label round 2." in notes
    assert "In 2 of 3 runs every client answered every query." in notes


# --- sections


def test_a_protocol_a_section_and_a_method_each_name(tmp_path: Path) -> None:
    for seed in (1, 2):
        for name in ("random", "fairfal"):
            label_rounds(tmp_path / f"{name}{seed}", name, seed, [0.5], output__dir=f"/{name}")
    label_rounds(tmp_path / "global", "fairfal", 1, [0.5], query__model="global")
    label_rounds(tmp_path / "other", "random", 1, [0.5], data__alpha=1.5)
    training(tmp_path / "training", "fedraw", 1, 0.5, REACHED, query__name="random")
    training(tmp_path / "trainings", "fedbuff", 1, 0.5, REACHED)
    found = {section.title: section for section in sections(read([tmp_path]))}
    assert set(found) == {
        "digits, label rounds (data.alpha = 0.3)",
        "digits, label rounds (data.alpha = 1.5)",
        "digits, training",
    }
    assert found["digits, label rounds (data.alpha = 0.3)"].seeds == {
        "fairfal, model = adaptive": 2,
        "fairfal, model = global": 1,
        "random": 2,
    }
    assert found["digits, label rounds (data.alpha = 1.5)"].methods == ("random",)
    assert found["digits, training"].methods == ("fedraw", "fedbuff")
    assert len({section.slug for section in found.values()}) == 3


def test_a_seed_of_the_data_of_its_own_is_another_protocol(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        label_rounds(tmp_path / f"follows{seed}", "random", seed, [0.5])
        label_rounds(tmp_path / f"own{seed}", "random", seed, [0.5], data__seed=7)
    parts = sections(read([tmp_path]))
    assert {section.protocol["data.seed"]: section.seeds for section in parts} == {
        "the run's seed": {"random": 3},
        7: {"random": 3},
    }


def test_runs_of_one_method_and_seed_count_once(tmp_path: Path) -> None:
    for name, accuracy in (("a", 0.5), ("b", 0.7)):
        label_rounds(tmp_path / name, "random", 1, [accuracy])
    found = read([tmp_path])
    (section,) = sections(found)
    assert section.rows["accuracy"].tolist() == [0.7]
    assert "one method and seed; the latter is counted" in found.warnings[0]


@pytest.mark.parametrize(("rgb", "parts"), [(False, 1), (True, 2)])
def test_a_key_that_came_later_has_its_default_in_earlier_runs(tmp_path: Path, rgb: bool, parts: int) -> None:
    label_rounds(tmp_path / "new", "random", 1, [0.5], data__rgb=rgb)
    old = label_rounds(tmp_path / "old", "random", 2, [0.5]) / "config.toml"
    config = tomllib.loads(old.read_text())
    del config["data"]["rgb"]
    old.write_text(tomli_w.dumps(config))
    assert len(sections(read([tmp_path]))) == parts


def test_names_of_methods() -> None:
    base = {"query.name": "fairfal", "query.kappa": 4.0, "strategy.name": "fedraw", "strategy.keep": "off"}
    assert method_names([base], "fairfal") == ["fairfal"]
    assert method_names([base], "fedraw") == ["fedraw"]
    assert method_names([base, base | {"query.name": "random", "query.kappa": 1.0}], "fairfal") == [
        "fairfal",
        "random",
    ]
    assert method_names([base, base | {"strategy.name": "fedavg"}], "fairfal") == ["fedraw", "fedavg"]
    assert method_names([base, base | {"query.name": "random", "strategy.name": "fedavg"}], "fairfal") == [
        "fairfal + fedraw",
        "random + fedavg",
    ]
    assert method_names([base, base | {"strategy.keep": "mean"}, base | {"query.kappa": 6.0}], "fedraw") == [
        "fedraw, kappa = 4, keep = off",
        "fedraw, kappa = 4, keep = mean",
        "fedraw, kappa = 6, keep = off",
    ]
    assert method_names([{}], "fedraw") == ["all runs"]


# --- results of sweeps

HEAD = "run,query.name,data.alpha,seed,label_round,label_ratio,accuracy,balanced_accuracy,rare_accuracy"
HEAD += ",macro_f1,rare_label_share,seconds\n"


def test_a_results_file(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    lines = [
        f'"q={q},s={s}",{q},0.1,{s},{t},0.{t},0.5,0.5,,0.5,0.1,9\n'
        for q in "ab"
        for s in (1, 2)
        for t in (1, 2)
    ]
    path.write_text(HEAD + "".join(lines) + "c,a,0.3,1,1,0.1,0.5,0.5,,0.5,0.1,9\n")
    first, second = sections(read([path]))
    assert first.title == f"{path}, label rounds (data.alpha = 0.1)"
    assert (first.methods, first.seeds, len(first.rows)) == (("a", "b"), {"a": 2, "b": 2}, 8)
    assert second.protocol == {"data.alpha": "0.3"}
    assert second.slug == "results-label-rounds-2"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n1,2\n", "has no column run, seed, version"),
        ("", "cannot be read"),
        (HEAD + "x,a,0.1,1,1,0.1,much,0.5,,0.5,0.1,9\n", "line 2: accuracy = 'much' is not a number"),
        (HEAD + "x,a,0.1,,1,0.1,0.5,0.5,,0.5,0.1,9\n", "line 2: seed is empty"),
        (HEAD, "holds no run"),
        (HEAD + "x,a,0.1,1,1,0.1,0.5", "holds no run"),
    ],
)
def test_a_results_file_that_is_none(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "results.csv").write_text(text)
    with pytest.raises(ReportError, match=said):
        read([tmp_path / "results.csv"])
