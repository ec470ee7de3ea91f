"""Folders that a run may have, and runs that may go on, looked at without touching them."""

import json
from pathlib import Path

import pytest
import tomli_w

from datasets.errors import PartitionError
from federation.errors import ConfigError, RunFolderError
from federation.runs.run_folder import RunFolder
from fedraw.errors import StrategyError
from rarefl.checks import check_data_of_all, check_files_and_packages, check_folder, read_summary
from rarefl.settings import read_words


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """The folder of a run of fedraw that was stopped."""
    config = read_words(["fedraw-digits"]).config()
    folder = RunFolder.create(str(tmp_path / "run"), "fedraw", "a label")
    (folder.path / "config.toml").write_text(tomli_w.dumps(config.resolved()))
    folder.release()
    return folder.path


def finish(folder: Path) -> None:
    (folder / "summary.json").write_text(json.dumps({"status": "finished"}))


def check(*words: str) -> None:
    check_folder(read_words(words).config())


def content(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_run_that_was_stopped_may_go_on_and_longer(begun: Path) -> None:
    before = content(begun)
    check("fedraw-digits", f"output.resume={begun}")
    check("fedraw-digits", f"output.resume={begun}", "train.rounds=80", "output.quiet=true")
    assert content(begun) == before


def test_a_run_cannot_become_another_one(begun: Path) -> None:
    with pytest.raises(ConfigError, match=r"seed is 1 there and 2 now.*may be raised"):
        check("fedraw-digits", f"output.resume={begun}", "seed=2")


def test_a_finished_run_goes_on_only_if_it_is_longer(begun: Path) -> None:
    finish(begun)
    with pytest.raises(RunFolderError, match="is finished"):
        check("fedraw-digits", f"output.resume={begun}")
    check("fedraw-digits", f"output.resume={begun}", "train.rounds=80")


def test_a_run_that_is_at_work_is_left_alone(begun: Path) -> None:
    folder = RunFolder.reopen(str(begun), "fedraw", "a label")
    try:
        with pytest.raises(RunFolderError, match="another run is writing"):
            check("fedraw-digits", f"output.resume={begun}")
    finally:
        folder.release()


def test_a_new_run_takes_no_folder_of_a_finished_one(begun: Path, tmp_path: Path) -> None:
    check(f"output.dir={begun}")  # what is unfinished there moves aside
    finish(begun)
    with pytest.raises(RunFolderError, match=rf"already holds a finished run.*rarefl run --resume {begun}"):
        check(f"output.dir={begun}")
    check(f"output.dir={tmp_path / 'new' / 'one'}")
    assert not (tmp_path / "new").exists()


def test_a_folder_below_a_file_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunFolderError, match="file is not a folder that you may write to"):
        check(f"output.dir={tmp_path / 'file' / 'run'}")


def test_a_file_that_cannot_be_read_is_named() -> None:
    words = ["strategy.name=fedbuff", "clock.availability=trace", "clock.availability-file=/nowhere.csv"]
    with pytest.raises(StrategyError, match="/nowhere"):
        check_files_and_packages(read_words(words).config())


@pytest.mark.parametrize("text", ["", "{", "[]"])
def test_half_a_summary_is_none(tmp_path: Path, text: str) -> None:
    assert read_summary(tmp_path) is None
    (tmp_path / "summary.json").write_text(text)
    assert read_summary(tmp_path) is None


def test_the_data_of_a_sweep_is_checked_for_every_way_of_dealing_it() -> None:
    given = [read_words([f"data.imbalance={imbalance}", "data.clients=2"]) for imbalance in (10, 1000)]
    with pytest.raises(PartitionError, match="imbalance"):
        check_data_of_all([each.config() for each in given])
    check_data_of_all([given[0].config()])


def test_a_folder_that_a_run_writes_to_is_refused(tmp_path: Path) -> None:
    held = RunFolder.create(str(tmp_path / "run"), "fairfal", "digits")
    config = read_words([f"output.dir={tmp_path / 'run'}"]).config()
    with pytest.raises(RunFolderError, match="another run is writing to"):
        check_folder(config)
    held.release()
    check_folder(config)
