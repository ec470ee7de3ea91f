"""What every test may rely on."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from flwr.supercore.task_identity import TaskIdentity
from hypothesis import HealthCheck, settings

# A busy machine is no reason to fail.
settings.register_profile("rarefl", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rarefl")


@pytest.fixture(scope="session", autouse=True)
def state_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder in which clients keep their state; that of the user stays clean."""
    folder = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder))
        yield folder / "rarefl" / "clients"


@pytest.fixture(autouse=True)
def _logger_as_before() -> Iterator[None]:
    """A ServerApp sets the logger ``rarefl`` up for its process; a test leaves it as it was."""
    logger = logging.getLogger("rarefl")
    before = logger.handlers[:], logger.level, logger.propagate
    yield
    logger.handlers[:], logger.level, logger.propagate = before


@pytest.fixture
def task_identity() -> None:
    """Flower makes messages only in a process that knows its task."""
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
