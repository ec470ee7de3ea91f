"""The check that a run and the command line share: the run config, and the server's folders."""

from pathlib import Path

import pytest

from fairfal_app.config import FairFALConfig
from federation.config.check import check_run_config
from federation.config.run_config import RunConfig, default_run_config
from federation.errors import ConfigError, RunFolderError


@pytest.mark.parametrize("key", ["output.dir", "output.resume"])
def test_a_relative_folder_is_refused(key: str) -> None:
    with pytest.raises(RunFolderError, match=rf"{key} = 'runs/one' is relative"):
        check_run_config(default_run_config() | {key: "runs/one"}, FairFALConfig)


def test_what_is_right_comes_back(tmp_path: Path) -> None:
    for folder in ("", "~/runs", str(tmp_path)):
        config = check_run_config(default_run_config() | {"output.dir": folder}, FairFALConfig)
        assert type(config) is FairFALConfig
        assert config.output.dir == folder
    assert type(check_run_config(default_run_config(), RunConfig)) is RunConfig
    with pytest.raises(ConfigError, match=r"train\.rounds = 0"):
        check_run_config(default_run_config() | {"train.rounds": 0}, FairFALConfig)
