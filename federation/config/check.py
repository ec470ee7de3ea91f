"""The one check of a run config on the machine of the ServerApp, for runs and for commands that only look."""

from collections.abc import Mapping
from typing import Any

from federation.config.run_config import AnyRunConfig, RunConfig, parse_run_config
from federation.runs.folders import DEFAULT_PARENT, absolute_path


def check_run_config(flat: Mapping[str, Any], model: type[AnyRunConfig]) -> AnyRunConfig:
    """Return the checked run config, as ``parse_run_config`` does, and check its folders, too.

    Clients parse the same run config, perhaps on another system, where the server's paths are none.

    Raises
    ------
    ConfigError
        Names each key at fault, its value and what is allowed.
    RunFolderError
        ``output.dir`` or ``output.resume`` is not an absolute path.
    """
    config = parse_run_config(flat, model)
    check_folders(config)
    return config


def check_folders(config: RunConfig) -> None:
    """Check that the folders of a run are absolute paths; raises RunFolderError."""
    absolute_path("output.dir", config.output.dir or DEFAULT_PARENT)
    if config.output.resume:
        absolute_path("output.resume", config.output.resume)
