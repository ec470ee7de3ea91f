"""What every test may rely on."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from flwr.supercore.task_identity import TaskIdentity
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

# A busy machine is no reason to fail.
settings.register_profile("rarefl", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rarefl")

# Tests that go to one process: those that start servers and Ray, and those that share undisturbed runs.
TOGETHER = ("tests/integration/", "tests/rarefl/test_resume.py")


def pytest_configure() -> None:
    """The tests run in two processes, which would wait for each other's threads."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")


class _SomeTogether(LoadScopeScheduling):
    """Hands out test by test; tests that go together run one after the other, beside the rest."""

    def _split_scope(self, nodeid: str) -> str:
        return next((start for start in TOGETHER if nodeid.startswith(start)), nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Take the place of what ``--dist`` names; its groups by marks do not work with pytest 9.2."""
    return _SomeTogether(config, log)


@pytest.fixture(scope="session", autouse=True)
def state_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder in which clients keep their state; that of the user stays clean."""
    folder = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder))
        yield folder / "rarefl" / "clients"


@pytest.fixture(autouse=True)
def _plain_logger() -> Iterator[None]:
    """A ServerApp sets the logger ``rarefl`` up for its process; a test starts and ends without that."""
    _reset_logger()
    yield
    _reset_logger()


def _reset_logger() -> None:
    logger = logging.getLogger("rarefl")
    logger.handlers.clear()
    logger.setLevel(logging.NOTSET)
    logger.propagate = True


@pytest.fixture
def task_identity() -> None:
    """Flower makes messages only in a process that knows its task."""
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
