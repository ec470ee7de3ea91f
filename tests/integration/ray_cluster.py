"""Machines of a Ray cluster over loopback: each a raylet with one CPU and a home of its own."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from tests.integration.deployment import free_port, wait_until

RAY = Path(sys.executable).with_name("ray")
MARK = "RAREFL_TEST_MACHINE"
STARTED = "Ray runtime started"


class Machine:
    """``ray start --block``, and every process that comes of it.

    Parameters
    ----------
    home
        The folder in which it starts, with its log and its clients' state.
    arguments
        Of ``ray start``, beside those that every machine of these tests gets.
    """

    def __init__(self, home: Path, arguments: list[str]) -> None:
        self.home = home
        self.clients = home / "rarefl" / "clients"
        self._log = home / "ray.log"
        home.mkdir()
        common = ["--block", "--num-cpus=1", "--object-store-memory=100000000", "--disable-usage-stats"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(RAY), "start", *arguments, *common],
                cwd=home,
                env=os.environ | {"XDG_STATE_HOME": str(home), MARK: str(home)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait(self) -> None:
        """Wait until it is part of the cluster."""

        def started() -> bool:
            assert self._process.poll() is None, self._log.read_text()
            return STARTED in self._log.read_text()

        wait_until(started, "ray start", 180)

    def kill(self) -> None:
        """End it as a power cut does; harmless when it has ended."""
        while family := self._family():
            for process in family:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            psutil.wait_procs(family, timeout=5)
        self._process.wait()

    def _family(self) -> list[psutil.Process]:
        """Return its processes; Ray's workers lose their environment, so children are looked up as well."""
        found: set[psutil.Process] = set()
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):  # the environment of a zombie cannot be read
                if process.environ().get(MARK) == str(self.home):
                    found |= {process, *process.children(recursive=True)}
        return list(found)


class RayCluster:
    """A head and a worker, alive inside a ``with`` block; their homes lie in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self.machines: list[Machine] = []
        self._folder = folder
        # In Ray's own place other programs would find this cluster and connect; sockets need a short path.
        self._sessions = tempfile.mkdtemp(prefix="ray-")

    def __enter__(self) -> Self:
        host, port = self.address.split(":")
        try:
            self._start(
                *("--head", f"--node-ip-address={host}", f"--port={port}"),
                *("--include-dashboard=false", f"--temp-dir={self._sessions}"),
            )
            self._start(f"--address={self.address}")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _start(self, *arguments: str) -> None:
        machine = Machine(self._folder / f"machine-{len(self.machines)}", list(arguments))
        self.machines.append(machine)
        machine.wait()

    def _end(self) -> None:
        for machine in reversed(self.machines):
            machine.kill()
        shutil.rmtree(self._sessions, ignore_errors=True)
