"""Folders of runs that another version of the app began."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from fairfal_app.config import FairFALConfig
from federation.config.run_config import default_run_config, parse_run_config
from federation.errors import ConfigError
from federation.runs.progress import set_up_logging
from federation.runs.resume import open_run


def config(**overrides: Any) -> FairFALConfig:
    given = {key.replace("__", ".").replace("_", "-"): value for key, value in overrides.items()}
    return parse_run_config(default_run_config() | given, FairFALConfig)


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    folder, _ = open_run(config(output__dir=str(tmp_path / "run")), "digits")
    folder.append_round({"round": 1})
    folder.checkpoint(lambda: ({}, {"round": 1}), needed=True)
    folder.release()
    return folder.path


def change(folder: Path, table: str, **keys: Any) -> None:
    """Give keys of the stored config other values; None takes a key out."""
    stored = tomllib.loads((folder / "config.toml").read_text())
    stored[table] |= keys
    stored[table] = {key: value for key, value in stored[table].items() if value is not None}
    (folder / "config.toml").write_text(tomli_w.dumps(stored))


def test_a_key_that_came_later_takes_its_default_and_is_named(
    begun: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(begun, "data", rgb=None)
    change(begun, "output", tensorboard=None)
    set_up_logging()
    folder, checkpoint = open_run(config(output__resume=str(begun)), "digits")
    folder.release()
    assert checkpoint is not None
    assert checkpoint.state == {"round": 1}
    assert "without data.rgb, output.tensorboard, which stay at the default" in capsys.readouterr().out
    assert folder.stored_config["data"]["rgb"] is False
    assert folder.stored_config["output"]["dir"] == str(begun)


def test_a_run_of_the_same_version_lacks_no_key(begun: Path, capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging()
    folder, _ = open_run(config(output__resume=str(begun)), "digits")
    folder.release()
    told = capsys.readouterr().out
    assert "goes on from its checkpoint" in told
    assert "at the default" not in told


def test_a_key_that_came_later_cannot_be_another_than_its_default(begun: Path) -> None:
    change(begun, "data", rgb=None)
    with pytest.raises(ConfigError, match=r"data\.rgb is False there and True now"):
        open_run(config(output__resume=str(begun), data__rgb=True), "digits")


def test_a_key_that_this_version_does_not_know_is_refused(begun: Path) -> None:
    change(begun, "train", momentums=0.9)
    with pytest.raises(ConfigError, match=r"made by another version of this app .*train\.momentums"):
        open_run(config(output__resume=str(begun)), "digits")
