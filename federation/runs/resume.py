"""The folder of a run, new or of a run that goes on, and which settings may differ then."""

import logging
from typing import NamedTuple

from federation.config.run_config import AnyRunConfig, RunConfig, flatten, parse_run_config, with_defaults
from federation.errors import ConfigError, RunFolderError
from federation.runs.checkpoints import Checkpoint
from federation.runs.progress import NOTICE
from federation.runs.run_folder import RunFolder
from federation.runs.tracking import check_tensorboard

logger = logging.getLogger("rarefl")

# Tables of settings that change nothing of what a run computes.
FREE_TABLES = ("nodes.", "output.")


class OpenRun(NamedTuple):
    """The folder of a run, and what it goes on from; None where it begins."""

    folder: RunFolder
    checkpoint: Checkpoint | None


def open_run(config: RunConfig, label: str) -> OpenRun:
    """Make the folder of a new run, or open that of ``output.resume`` and cut its tables to its checkpoint.

    Raises
    ------
    RunFolderError
        The folder cannot be used, its run is finished and nothing is raised, or its checkpoints are damaged.
    ConfigError
        Settings differ from those of the run that is to go on, or TensorBoard is asked for and missing.
    """
    if config.output.tensorboard:
        check_tensorboard()
    if not config.output.resume:
        folder = RunFolder.create(config.output.dir, config.app, label)
        folder.write_config(config.resolved())
        logger.log(NOTICE, "results go to %s", folder.path)
        if config.output.tensorboard:
            folder.track(config)
        return OpenRun(folder, None)
    folder = RunFolder.reopen(config.output.resume, config.app, label)
    try:
        checkpoint = _go_on(folder, config)
        if config.output.tensorboard:
            folder.track(config)
        return OpenRun(folder, checkpoint)
    except BaseException:
        folder.release()
        raise


def config_before(folder: RunFolder, config: AnyRunConfig) -> tuple[AnyRunConfig, tuple[str, ...]]:
    """Return the config of the run that is to go on by ``config``, and the keys that came later than it.

    Raises
    ------
    RunFolderError
        The run is finished, and nothing is raised.
    ConfigError
        Settings differ from those of the run, or another version of the app made it.
    """
    stored, later = with_defaults(flatten(folder.stored_config))
    try:
        before = parse_run_config(stored, type(config))
    except ConfigError as error:
        raise ConfigError(
            f"output.resume: {folder.path} was made by another version of this app ({error}); resume it with "
            "that version, or start a new run"
        ) from None
    if faults := differences(before, config):
        raise ConfigError(
            f"output.resume: {folder.path} has other settings: {'; '.join(faults)}. Give those of the run "
            f"(its config.toml has them all); {config.may_be_raised} may be raised, nodes.* and output.* "
            "may differ"
        )
    if folder.finished and config.length <= before.length:
        raise RunFolderError(
            f"output.resume: the run in {folder.path} is finished; to make it longer, raise "
            f"{config.may_be_raised}"
        )
    return before, later


def _go_on(folder: RunFolder, config: RunConfig) -> Checkpoint | None:
    before, later = config_before(folder, config)
    checkpoint = folder.load_checkpoint()
    now = config.resolved()
    now["output"] |= {"dir": before.output.dir, "resume": before.output.resume}
    folder.write_config(now)
    folder.write_summary(folder.told)
    if config.steps > before.steps:
        logger.info(
            "the training was to have %d steps and now has %d: those to come take the learning rate of the "
            "longer schedule, those before keep that of the shorter one",
            before.steps,
            config.steps,
        )
    if later:
        logger.log(
            NOTICE,
            "the run was started by a version of this app without %s, which %s at the default",
            ", ".join(later),
            "stays" if len(later) == 1 else "stay",
        )
    start = "from its checkpoint" if checkpoint else "from its start"
    logger.log(NOTICE, "the run in %s goes on %s", folder.path, start)
    return checkpoint


def differences(before: RunConfig, now: RunConfig) -> list[str]:
    """Name the settings that may not differ between a run and what resumes it, with both values."""
    old, new = flatten(before.resolved()), flatten(now.resolved())
    return [
        f"{key} is {old[key]!r} there and {new[key]!r} now"
        for key in old
        if old[key] != new[key] and not key.startswith(FREE_TABLES) and not now.only_longer(key, before)
    ]
