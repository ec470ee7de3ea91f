"""A SuperLink of one's own on this machine: started, used for some runs, and ended with all it started.

``flwr run`` starts a shared SuperLink in the background and leaves it there, with the folder it was started
from first on the path of every Ray worker. This one has its own FLWR_HOME, port and empty working folder.
"""

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple, Self

import httpx
import psutil

from federation.errors import RareflError

HOME_MARK = "RAREFL_SUPERLINK_HOME"
"""Environment variable by which the processes of a SuperLink are found again, orphans included."""

_CONNECTION = "rarefl"
_RUN_STARTED = re.compile(r"Successfully started run (\d+)")
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_PORT_TRIES = 3
_STATUS_TRIES = 5
_ENDINGS = (psutil.Process.terminate, psutil.Process.kill)


class SuperLinkError(RareflError):
    """The SuperLink did not start, or does not answer."""


class RunOutcome(NamedTuple):
    """How a run ended.

    ``status`` is Flower's own (``finished:completed``, ``finished:failed``, ``finished:stopped``), or
    ``refused`` when the run was never started, or ``lost`` when the SuperLink died under it.
    """

    run_id: int | None
    status: str
    details: str

    @property
    def completed(self) -> bool:
        """Whether Flower says that the ServerApp ended without an error."""
        return self.status == "finished:completed"


class LocalSuperLink:
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
    ) -> RunOutcome:
        """Run a Flower App and wait for its end; a SuperLink that died in the meantime is started anew.

        Parameters
        ----------
        app_dir
            Folder of the app's ``pyproject.toml``.
        run_config_file
            TOML file that overrides the app's run config.
        federation_config
            ``key=value`` pairs as ``flwr run --federation-config`` takes them.
        on_line
            Called with every line of the run's log, without colours and line end.

        Raises
        ------
        KeyboardInterrupt
            Passed on after the run was stopped.
        """
        if not self.running:
            self._start()
        arguments = ["run", str(app_dir.resolve()), "--stream"]
        if run_config_file is not None:
            arguments += ["--run-config", str(run_config_file.resolve())]
        if federation_config:
            arguments += ["--federation-config", federation_config]
        run_id: int | None = None
        lines: list[str] = []
        command = self._flwr(arguments)
        try:
            for line in _plain_lines(command.stdout):
                if run_id is None:
                    lines.append(line)
                    if match := _RUN_STARTED.search(line):
                        run_id = int(match[1])
                if on_line is not None:
                    on_line(line)
            command.wait()
            if run_id is None:
                return RunOutcome(None, "refused", _error_text(lines))
            return self._wait_until_finished(run_id)
        except BaseException:
            if run_id is not None:
                self._stop_run(run_id)
            raise
        finally:
            command.kill()
            command.wait()

    def status(self, run_id: int) -> RunOutcome:
        """Return what Flower says of a run now; ``flwr run --stream`` exits 0 however the run ended.

        Raises
        ------
        SuperLinkError
            When there is no answer, or the run is unknown.
        """
        command = self._flwr(["ls", "--run-id", str(run_id), "--format", "json"], stderr=subprocess.DEVNULL)
        output, _ = command.communicate()
        try:
            answer = json.loads(output)
        except ValueError:
            raise SuperLinkError(f"flwr ls gave no answer about run {run_id}: {output.strip()}") from None
        if not answer.get("success") or not answer.get("runs"):
            raise SuperLinkError(f"flwr ls knows nothing of run {run_id}: {output.strip()}")
        run = answer["runs"][0]
        return RunOutcome(run_id, run["status"], run.get("status-details") or "")

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
                _script("flower-superlink"),
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

    def _environment(self) -> dict[str, str]:
        return _environment(self.home, self.port, os.environ)

    def _flwr(self, arguments: list[str], stderr: int = subprocess.STDOUT) -> subprocess.Popen[str]:
        # A session of its own: Ctrl-C in the terminal reaches us alone, and we decide what stops when.
        return subprocess.Popen(
            [_script("flwr"), *arguments],
            cwd=self._empty,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )

    def _wait_until_finished(self, run_id: int) -> RunOutcome:
        """Return the outcome; the stream of a run ends a little before it is finished, or when it is lost."""
        unanswered = 0
        while True:
            try:
                outcome = self.status(run_id)
            except SuperLinkError:
                unanswered += 1
                if not self.running:
                    return RunOutcome(
                        run_id, "lost", f"the SuperLink ended during the run; {self._log_tail()}"
                    )
                if unanswered == _STATUS_TRIES:
                    raise
            else:
                if outcome.status.startswith("finished"):
                    return outcome
            time.sleep(1)

    def _stop_run(self, run_id: int) -> None:
        command = self._flwr(["stop", str(run_id)])
        try:
            command.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            pass
        finally:
            command.kill()
            command.wait()


def _environment(home: Path, port: int, base: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of everything that belongs to this SuperLink."""
    scripts = str(Path(sys.executable).parent)
    return {
        **base,
        # The SuperLink starts further commands of Flower by their bare names.
        "PATH": os.pathsep.join([scripts, base.get("PATH", os.defpath)]),
        "FLWR_HOME": str(home),
        "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(port),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONUTF8": "1",
        HOME_MARK: str(home),
    }


def _script(name: str) -> str:
    """Return the path of a command of Flower, also when the virtual environment is not activated."""
    scripts = Path(sys.executable).parent
    found = shutil.which(name, path=os.pathsep.join([str(scripts), os.environ.get("PATH", os.defpath)]))
    if found is None:
        raise SuperLinkError(f"there is no command {name} in {scripts} or on PATH; install flwr[simulation]")
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _plain_lines(stream: IO[str] | None) -> Iterable[str]:
    assert stream is not None
    for line in stream:
        yield _ANSI.sub("", line).rstrip()


def _error_text(lines: Sequence[str]) -> str:
    """Return Flower's error message, which it prints in a box; without a box everything it printed."""
    boxed = [line.strip("│ ") for line in lines if line.startswith("│")]
    return "\n".join(boxed or lines).strip()


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
