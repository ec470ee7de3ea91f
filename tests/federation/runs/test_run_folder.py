"""The run folder: where it may be, and that its files are whole, ordered and readable."""

import json
import math
import os
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from federation.errors import DivergedError, RunFolderError
from federation.runs.checkpoints import Checkpoint
from federation.runs.run_folder import RunFolder


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(str(tmp_path / "run"), "fairfal", "digits")


def summary(folder: RunFolder) -> dict:
    return json.loads((folder.path / "summary.json").read_text())


# --- where


def test_the_folder_is_made_and_says_that_the_run_has_begun(tmp_path: Path) -> None:
    folder = RunFolder.create(str(tmp_path / "a" / "b"), "fairfal", "digits")
    assert folder.path == tmp_path / "a" / "b"
    assert summary(folder) == {"app": "fairfal", "label": "digits", "status": "running", "reason": ""}
    assert sorted(os.listdir(folder.path)) == ["checkpoint", "summary.json"]


def test_the_home_folder_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert RunFolder.create("~/results", "fairfal", "digits").path == tmp_path / "results"


def test_by_default_each_run_gets_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    paths = {RunFolder.create("", "fairfal", "digits-fairfal").path for _ in range(3)}
    assert len(paths) == 3
    assert {path.parent for path in paths} == {tmp_path / "rarefl" / "runs"}
    assert all("-digits-fairfal" in path.name for path in paths)


def test_a_relative_path_is_refused_with_the_reason() -> None:
    with pytest.raises(RunFolderError) as caught:
        RunFolder.create("results/run1", "fairfal", "digits")
    for part in (
        "output.dir = 'results/run1' is relative",
        "working folder",
        "absolute path",
        str(Path.home()),
    ):
        assert part in str(caught.value)


def test_an_unknown_user_is_refused() -> None:
    with pytest.raises(RunFolderError, match="absolute path"):
        RunFolder.create("~no-such-user-here/runs", "fairfal", "digits")


@pytest.mark.parametrize("below", ["", "/run"])
def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        RunFolderError, match=r"output.dir: cannot write to .*file.*: (Not a directory|File exists)"
    ):
        RunFolder.create(f"{tmp_path}/file{below}", "fairfal", "digits")


def test_a_folder_without_permission_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(
        RunFolderError, match=r"cannot write to .*Permission denied.*user who runs the SuperLink"
    ):
        RunFolder.create(str(tmp_path), "fairfal", "digits")


def test_a_finished_run_is_not_written_over(folder: RunFolder) -> None:
    folder.write_summary({}, "finished")
    folder.release()
    with pytest.raises(RunFolderError, match="already holds a finished run"):
        RunFolder.create(str(folder.path), "fairfal", "digits")


@pytest.mark.parametrize("status", ["running", "failed"])
def test_an_unfinished_run_moves_out_of_the_way(folder: RunFolder, status: str) -> None:
    folder.append_round({"round": 1})
    folder.write_summary({}, status)
    folder.release()
    for number in (1, 2):
        again = RunFolder.create(str(folder.path), "fairfal", "digits")
        again.append_round({"round": number})
        again.release()
        assert (folder.path / "rounds.csv").read_text() == f"round\n{number}\n"
    assert (folder.path / "earlier-1" / "rounds.csv").read_text() == "round\n1\n"
    assert json.loads((folder.path / "earlier-1" / "summary.json").read_text())["status"] == status
    assert (folder.path / "earlier-2" / "rounds.csv").is_file()


def test_other_files_in_the_folder_stay(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "summary.json").write_text("{ not json")
    RunFolder.create(str(tmp_path), "fairfal", "digits")
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert (tmp_path / "earlier-1" / "summary.json").read_text() == "{ not json"


# --- tables


def test_columns_keep_their_order_and_rows_may_lack_some(folder: RunFolder) -> None:
    folder.append_round({"label-round": 1, "round": 1, "seconds": 0.5})
    folder.append_round({"seconds": 0.25, "round": 2, "label-round": 1, "accuracy": 1 / 3})
    folder.append_round(
        {"round": 3, "accuracy": np.float64(0.75), "label-round": np.int64(1), "note": 'a, "b"\nc'}
    )
    folder.append_round({"round": 4, "accuracy": math.nan})
    assert (folder.path / "rounds.csv").read_bytes() == (
        b"label-round,round,seconds,accuracy,note\n"
        b"1,1,0.5,,\n"
        b"1,2,0.25,0.3333333333333333,\n"
        b'1,3,,0.75,"a, ""b""\nc"\n'
        b",4,,,\n"
    )


def test_rounds_and_queries_are_two_tables(folder: RunFolder) -> None:
    folder.append_round({"round": 1})
    folder.append_query({"site": "01"})
    folder.append_query({"site": "02", "budget": 3})
    assert (folder.path / "queries.csv").read_text() == "site,budget\n01,\n02,3\n"
    assert (folder.path / "rounds.csv").read_text() == "round\n1\n"


def test_events_come_many_at_a_time_and_whole_numbers_stay_whole(folder: RunFolder) -> None:
    folder.append_events(
        [{"time": 0.5, "job": 1, "reason": ""}, {"time": 1 / 3, "job": None, "reason": "a, b"}]
    )
    folder.append_events([{"time": 2.0, "job": 7, "reason": ""}])
    written = (folder.path / "events.csv").read_text()
    assert written == 'time,job,reason\n0.5,1,\n0.3333333333333333,,"a, b"\n2.0,7,\n'


def test_influence_is_written_whole(folder: RunFolder) -> None:
    for count in (1, 2):
        folder.write_influence([{"site": f"site-{i}", "weight": 0.5} for i in range(count)])
    assert (folder.path / "influence.csv").read_text() == "site,weight\nsite-0,0.5\nsite-1,0.5\n"


def test_a_table_that_is_there_is_continued(folder: RunFolder) -> None:
    folder.append_round({"round": 1, "accuracy": 0.5})
    later = RunFolder(folder.path, "fairfal", "digits")
    later.append_round({"round": 2})
    later.append_round({"accuracy": 0.7, "rare": 0.1})
    assert (folder.path / "rounds.csv").read_text() == "round,accuracy,rare\n1,0.5,\n2,,\n,0.7,0.1\n"


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(
        st.dictionaries(st.sampled_from("abcd"), st.integers() | st.floats(allow_nan=False), min_size=1),
        min_size=1,
        max_size=6,
    )
)
def test_what_was_appended_is_read_back(tmp_path: Path, rows: list[dict]) -> None:
    (tmp_path / "rounds.csv").unlink(missing_ok=True)
    folder = RunFolder(tmp_path, "fairfal", "digits")
    for row in rows:
        folder.append_round(row)
    table = pd.read_csv(tmp_path / "rounds.csv", dtype=str, keep_default_na=False)
    assert list(table.columns) == list(dict.fromkeys(key for row in rows for key in row))
    for row, cells in zip(rows, table.to_dict("records"), strict=True):
        assert {key: type(row[key])(cell) for key, cell in cells.items() if cell} == row


# --- whole files


def test_the_config_can_be_read_back(folder: RunFolder) -> None:
    resolved = {
        "app": "fairfal",
        "train": {"lr": 1e-5, "flip": False, "rounds": 3},
        "data": {"root": 'a "b"\\ é'},
    }
    folder.write_config(resolved)
    assert tomllib.loads((folder.path / "config.toml").read_text()) == resolved


def test_the_summary_holds_plain_values(folder: RunFolder) -> None:
    folder.write_summary(
        {
            "accuracy": np.float32(0.5),
            "rare": math.nan,
            "per_class": np.array([0.5, np.inf]),
            "counts": (np.int64(1), 2),
            "path": folder.path,
            "sites": {1: "a"},
            "ok": np.bool_(True),
        },
        "failed",
        "all clients failed",
    )
    assert summary(folder) == {
        "app": "fairfal",
        "label": "digits",
        "status": "failed",
        "reason": "all clients failed",
        "accuracy": 0.5,
        "rare": None,
        "per_class": [0.5, None],
        "counts": [1, 2],
        "path": str(folder.path),
        "sites": {"1": "a"},
        "ok": True,
    }


def test_a_write_that_fails_leaves_the_old_file(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.save_arrays({"weight": np.ones(2)})
    before = (folder.path / "final.pt").read_bytes()

    def broken(tensors: object, path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(torch, "save", broken)
    with pytest.raises(OSError, match="disk full"):
        folder.save_arrays({"weight": np.zeros(2)})
    assert (folder.path / "final.pt").read_bytes() == before
    assert sorted(os.listdir(folder.path)) == ["checkpoint", "final.pt", "summary.json"]


def test_arrays_are_tensors_that_load_without_pickle(folder: RunFolder) -> None:
    read_only = np.arange(6, dtype=np.float32).reshape(2, 3).T
    read_only.flags.writeable = False
    arrays = {"weight": read_only, "steps": np.array(7, dtype=np.int64), "empty": np.zeros((0, 2))}
    folder.save_arrays(arrays)
    loaded = torch.load(folder.path / "final.pt", weights_only=True)
    assert list(loaded) == list(arrays)
    for key, array in arrays.items():
        assert loaded[key].shape == array.shape
        np.testing.assert_array_equal(loaded[key].numpy(), array)
    folder.save_arrays(arrays, "label-round-1.pt")
    assert (folder.path / "label-round-1.pt").is_file()


def test_the_curve_is_a_picture(folder: RunFolder) -> None:
    folder.save_figure("curve.png", Figure())
    assert (folder.path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_confusion_has_a_row_a_true_label(folder: RunFolder) -> None:
    folder.write_confusion(np.array([[5, 1], [2, 7]]))
    assert (folder.path / "confusion.csv").read_text() == "label,class_0,class_1\n0,5,1\n1,2,7\n"


# --- failures


def test_a_run_that_diverged_says_so_and_goes_on_from_its_checkpoint(folder: RunFolder) -> None:
    folder.append_round({"round": 6, "accuracy": 0.5})
    folder.checkpoint(lambda: Checkpoint({"weight": np.ones(2)}, {"round": 6}), needed=True)
    folder.append_round({"round": 7, "accuracy": 0.1})
    with pytest.raises(DivergedError), folder.told_if_failed(lambda: {"seconds": 3.0}):
        raise DivergedError("round 7", "site-3's model holds NaN")
    told = summary(folder)
    assert (told["status"], told["seconds"]) == ("diverged", 3.0)
    for part in ("DivergedError: round 7: site-3's model holds NaN", "train.lr", "fp32"):
        assert part in told["reason"]
    again = RunFolder.reopen(str(folder.path), "fairfal", "digits")
    checkpoint = again.load_checkpoint()
    assert checkpoint is not None
    assert checkpoint.state == {"round": 6}
    assert (folder.path / "rounds.csv").read_text() == "round,accuracy\n6,0.5\n"
