"""A SuperLink of one's own on this machine: started, used for some runs, and ended with all it started.

``flwr run`` starts a shared SuperLink in the background and leaves it there, with the folder it was started
from first on the path of every Ray worker. This one has its own FLWR_HOME, port and empty working folder.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx
import psutil

from rarefl.flower import FlowerCommands, RunOutcome, SuperLinkError, flower_environment, script

HOME_MARK = "RAREFL_SUPERLINK_HOME"
"""Environment variable by which the processes of a SuperLink are found again, orphans included."""

_CONNECTION = "rarefl"
_PORT_TRIES = 3
_ENDINGS = (psutil.Process.terminate, psutil.Process.kill)


class LocalSuperLink(FlowerCommands):
    """A SuperLink for simulations, alive inside a ``with`` block.

    Parameters
    ----------
    home
        Folder for its FLWR_HOME; it stays, and what an earlier SuperLink with the same home left running is
        ended first. Without one a temporary folder is used, which is removed unless the block ends with an
        exception.
    log_file
        File to which everything it prints is appended; ``superlink.log`` in its home by default.
    start_timeout
        Seconds to wait until it answers.

    Raises
    ------
    SuperLinkError
        On entry, when it does not start or does not answer in time.
    """

    def __init__(
        self, home: Path | None = None, log_file: Path | None = None, start_timeout: float = 60.0
    ) -> None:
        super().__init__()
        self._keep_home = home is not None
        self.home = (home or Path(tempfile.mkdtemp(prefix="rarefl-superlink-"))).resolve()
        self.log_file = log_file or self.home / "superlink.log"
        self.port = 0
        self._start_timeout = start_timeout
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        """Whether the SuperLink's process is alive."""
        return self._process is not None and self._process.poll() is None

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.stop()
        except KeyboardInterrupt:  # a second one, meant for whoever waits; nothing may stay behind
            self.stop()
            raise
        if not self._keep_home and error is None:
            shutil.rmtree(self.home, ignore_errors=True)

    def submit(
        self,
        app_dir: Path,
        run_config_file: Path | None = None,
        federation_config: str = "",
        on_line: Callable[[str], None] | None = None,
        on_own_line: Callable[[str], None] | None = None,
    ) -> RunOutcome:
        """Run a Flower App and wait for its end; a SuperLink that died in the meantime is started anew."""
        if not self.running:
            self._start()
        return super().submit(app_dir, run_config_file, federation_config, on_line, on_own_line)

    def stop(self) -> None:
        """End the SuperLink and every process that it started, Ray's too; harmless when it never started."""
        alive: list[psutil.Process] = []
        for action in _ENDINGS:
            family = {*alive, *_family(self.home)}
            for process in family:
                with contextlib.suppress(psutil.Error):
                    action(process)
            _, alive = psutil.wait_procs(family, timeout=5)
        if self._process is not None:
            self._process.wait()

    def _start(self) -> None:
        self.stop()  # what an earlier process left that was killed inside its block
        for folder in (self.home, self._empty):
            folder.mkdir(parents=True, exist_ok=True)
        for _ in range(_PORT_TRIES):
            self.port = _free_port()
            (self.home / "config.toml").write_text(
                f'[superlink]\ndefault = "{_CONNECTION}"\n\n'
                f'[superlink.{_CONNECTION}]\naddress = "127.0.0.1:{self.port}"\ninsecure = true\n'
            )
            # No --database: a run that was killed with an earlier SuperLink must not come back to life.
            command = [
                script("flower-superlink"),
                *("--insecure", "--simulation", "--isolation", "subprocess"),
                *("--host", "127.0.0.1", "--port", str(self.port)),
            ]
            with self.log_file.open("ab") as log:
                self._process = subprocess.Popen(
                    command,
                    cwd=self._empty,
                    env=self._environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            if self._answers():
                return
        raise SuperLinkError(
            f"the local SuperLink ended at its start, {_PORT_TRIES} times; {self._log_tail()}"
        )

    def _answers(self) -> bool:
        """Wait for the SuperLink; False when it ended (a port may be lost between choice and use)."""
        deadline = time.monotonic() + self._start_timeout
        while time.monotonic() < deadline:
            if not self.running:
                return False
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"http://127.0.0.1:{self.port}/health", timeout=2, trust_env=False).is_success:
                    return True
            time.sleep(0.2)
        raise SuperLinkError(
            f"the local SuperLink did not answer within {self._start_timeout:g} s; {self._log_tail()}"
        )

    def _log_tail(self, lines: int = 15) -> str:
        text = self.log_file.read_text(encoding="utf-8", errors="replace")
        return f"the end of {self.log_file}:\n" + "\n".join(text.splitlines()[-lines:])

    @property
    def _empty(self) -> Path:
        return self.home / "empty"

    def _folder(self) -> Path:
        return self._empty

    def _why_lost(self) -> str:
        return "" if self.running else f"the SuperLink ended during the run; {self._log_tail()}"

    def _environment(self) -> dict[str, str]:
        """Return the environment of everything that belongs to this SuperLink."""
        return {
            **flower_environment(os.environ),
            "FLWR_HOME": str(self.home),
            "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(self.port),
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            HOME_MARK: str(self.home),
        }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _family(home: Path) -> list[psutil.Process]:
    """Return all processes of the SuperLink with this home.

    Ray's workers rename themselves and lose their environment by that, so children are looked up as well.
    """
    found: set[psutil.Process] = set()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(HOME_MARK) == str(home):
                found |= {process, *process.children(recursive=True)}
    return [process for process in found if process.pid != os.getpid()]
