"""What every test may rely on."""

import logging
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is no reason to fail.
settings.register_profile("rarefl", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rarefl")


@pytest.fixture(autouse=True)
def _logger_as_before() -> Iterator[None]:
    """A ServerApp sets the logger ``rarefl`` up for its process; a test leaves it as it was."""
    logger = logging.getLogger("rarefl")
    before = logger.handlers[:], logger.level, logger.propagate
    yield
    logger.handlers[:], logger.level, logger.propagate = before
