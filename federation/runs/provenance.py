"""What a run was made with, and how long it took, over all the times that it was resumed."""

import logging
import platform
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from importlib.metadata import version
from typing import Any

from federation.config.run_config import RunConfig
from federation.messages.failures import Failure
from federation.messages.grid import ClientGrid
from federation.messages.hello import Federation
from federation.runs.checkout import app_version, source_commit
from federation.runs.fingerprint import source_fingerprint
from federation.runs.run_folder import RunFolder
from learning.device import device_name, pick_device

logger = logging.getLogger("rarefl")

PACKAGES = ("flwr", "ray", "torch", "numpy")


class RunBooks:
    """What a run was made with and what it took, in this session of the server and in those before.

    A session is what one process did, from the start of the run or from where it went on.

    Parameters
    ----------
    config
        The run config.
    clients
        The grid, whose failures and traffic are part of the books.
    federation
        The clients.
    folder
        The run's folder, which knows what checkpoints took.
    """

    def __init__(
        self, config: RunConfig, clients: ClientGrid, federation: Federation, folder: RunFolder
    ) -> None:
        self._config = config
        self._folder = folder
        self._clients = clients
        self._sources, _ = source_fingerprint()
        self._commit = source_commit()
        self._devices = sorted({site.device for site in federation.sites})
        self._begun = time.monotonic()
        self._started = datetime.now().astimezone().isoformat(timespec="seconds")
        self._before: list[dict[str, Any]] = []

    @property
    def seconds(self) -> float:
        """Seconds that the run took until now; what a kill undid does not count."""
        return sum(session["seconds"] for session in self._sessions)

    @property
    def _sessions(self) -> list[dict[str, Any]]:
        now = {
            "started": self._started,
            "seconds": round(time.monotonic() - self._begun, 1),
            "checkpoint_seconds": round(self._folder.checkpoint_seconds, 3),
            "sources": self._sources,
            "commit": self._commit,
        }
        return [*self._before, now]

    def provenance(self) -> dict[str, Any]:
        """Return what the run was made with, for the summary.

        ``version``, ``sources`` (their fingerprint) and ``commit`` are those of the last session;
        ``sessions`` has those of each.
        """
        return {
            "python": platform.python_version(),
            "system": sys.platform,
            "packages": {name: version(name) for name in PACKAGES},
            "version": app_version(),
            "sources": self._sources,
            "commit": self._commit,
            "seeds": {"run": self._config.seed, "data": self._config.data_seed},
            "devices": {"server": device_name(pick_device()), "clients": self._devices},
            "sessions": self._sessions,
            "array_bytes": self._clients.array_bytes,
        }

    def state(self) -> dict[str, Any]:
        """Return what ``restore`` needs, as JSON."""
        return {
            "sessions": self._sessions,
            "sources": self._sources,
            "failures": [asdict(failure) for failure in self._clients.failures],
            "array_bytes": self._clients.array_bytes,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on with the books of a state; a warning tells when the source files are others since."""
        if state["sources"] != self._sources:
            logger.warning(
                "the source files are not those with which the run was started: what follows may differ from "
                "what they would have given"
            )
        self._before = state["sessions"]
        self._clients.failures[:] = [Failure(**failure) for failure in state["failures"]]
        self._clients.array_bytes.clear()
        self._clients.array_bytes.update(state["array_bytes"])
