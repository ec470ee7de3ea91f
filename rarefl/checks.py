"""What can be wrong with a run beside the values of its settings, found before anything is started."""

import json
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from datasets.federated import FederatedData, federate
from fairfal_app.config import FairFALConfig
from federation.client import data_spec
from federation.errors import RunFolderError
from federation.runs.folders import DEFAULT_PARENT, absolute_path, is_held
from federation.runs.resume import config_before
from federation.runs.run_folder import SUMMARY, RunFolder
from federation.runs.tracking import check_tensorboard
from fedraw_app.options import check_files, check_rare_labels


def check_files_and_packages(config: FairFALConfig) -> None:
    """Check what a run config needs on the machine of the ServerApp.

    Raises
    ------
    ConfigError
        TensorBoard is asked for and missing.
    StrategyError
        A file of delays or availability cannot be used.
    """
    if config.output.tensorboard:
        check_tensorboard()
    check_files(config)


def check_folder(config: FairFALConfig) -> None:
    """Check that the run can have the folder that its config names; nothing is made or changed.

    Raises
    ------
    RunFolderError
        It holds a finished run, cannot be written to, or is to go on and cannot.
    ConfigError
        Settings differ from those of the run that is to go on.
    """
    if config.output.resume:
        _check_resume(config)
    else:
        _check_folder(absolute_path("output.dir", config.output.dir or DEFAULT_PARENT))


def check_data(config: FairFALConfig) -> FederatedData:
    """Read and deal the data as a run does.

    Raises
    ------
    DataError
        It is not found or damaged, or cannot be dealt as asked.
    SettingError
        Clients with rare labels are to be slow, and there are no rare labels.
    """
    data = federate(data_spec(config))
    check_rare_labels(config, data.rare_labels)
    return data


def check_data_of_all(configs: Iterable[FairFALConfig]) -> None:
    """Check the data of runs, once where they differ in the seed only; errors as of ``check_data``."""
    for config in {replace(data_spec(config), seed=0): config for config in configs}.values():
        check_data(config)


def forget_data() -> None:
    """Free the memory of what :func:`check_data` read, for the processes of the run read it themselves."""
    federate.cache_clear()


def read_summary(folder: Path) -> dict[str, Any] | None:
    """Return the content of a run's ``summary.json``; None when there is none, or only the half of one."""
    try:
        summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return summary if isinstance(summary, dict) else None


def _check_folder(path: Path) -> None:
    if (read_summary(path) or {}).get("status") == "finished":
        raise RunFolderError(
            f"output.dir: {path} already holds a finished run. Give another folder, or move that one away; "
            f"to make it longer, use `rarefl run --resume {path}`"
        )
    if is_held(path):
        raise RunFolderError(
            f"output.dir: another run is writing to {path}; wait for it, or give another one"
        )
    there = next(folder for folder in (path, *path.parents) if folder.exists())
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        raise RunFolderError(
            f"output.dir: cannot write to {path}: {there} is not a folder that you may write to; give "
            "another one"
        )


def _check_resume(config: FairFALConfig) -> None:
    folder = RunFolder.reopen(config.output.resume, config.app, "")
    try:
        config_before(folder, config)
    finally:
        folder.release()
