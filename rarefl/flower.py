"""Flower's own command line, driven from here: a run is started, followed, stopped, and its end is told.

``flwr run --stream`` exits 0 however a run ended, so its end is asked for.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from federation.errors import RareflError
from federation.runs.progress import OWN_LINE

_RUN_STARTED = re.compile(r"Successfully started run (\d+)")
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_STATUS_TRIES = 5


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


class FlowerCommands:
    """The commands ``flwr run``, ``flwr ls`` and ``flwr stop`` for one SuperLink.

    Parameters
    ----------
    connection
        Name of the SuperLink in the ``config.toml`` of the FLWR_HOME; "" takes the default one.
    """

    def __init__(self, connection: str = "") -> None:
        self._connection = [connection] if connection else []

    def submit(
        self,
        app_dir: Path,
        run_config_file: Path | None = None,
        federation_config: str = "",
        on_line: Callable[[str], None] | None = None,
        on_own_line: Callable[[str], None] | None = None,
    ) -> RunOutcome:
        """Run a Flower App and wait for its end.

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
        on_own_line
            Called with those lines that the run itself has to tell, after ``on_line``.

        Raises
        ------
        KeyboardInterrupt
            Passed on after the run was stopped.
        """
        arguments = ["run", str(app_dir.resolve()), *self._connection, "--stream"]
        if run_config_file is not None:
            arguments += ["--run-config", str(run_config_file.resolve())]
        if federation_config:
            arguments += ["--federation-config", federation_config]
        run_id: int | None = None
        lines: list[str] = []
        command = self._flwr(arguments)
        try:
            for own, line in _lines(command.stdout):
                if run_id is None:
                    lines.append(line)
                    if match := _RUN_STARTED.search(line):
                        run_id = int(match[1])
                if on_line is not None:
                    on_line(line)
                if own and on_own_line is not None:
                    on_own_line(line)
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
        """Return what Flower says of a run now.

        Raises
        ------
        SuperLinkError
            When there is no answer, or the run is unknown.
        """
        arguments = ["ls", *self._connection, "--run-id", str(run_id), "--format", "json"]
        output, _ = self._flwr(arguments, stderr=subprocess.DEVNULL).communicate()
        try:
            answer = json.loads(output)
        except ValueError:
            raise SuperLinkError(f"flwr ls gave no answer about run {run_id}: {output.strip()}") from None
        if not answer.get("success") or not answer.get("runs"):
            raise SuperLinkError(f"flwr ls knows nothing of run {run_id}: {output.strip()}")
        run = answer["runs"][0]
        return RunOutcome(run_id, run["status"], run.get("status-details") or "")

    def _why_lost(self) -> str:
        """Return why no answer can come any more; "" while one may."""
        return ""

    def _environment(self) -> dict[str, str]:
        return flower_environment(os.environ)

    def _folder(self) -> Path | None:
        """Return the working folder of the commands; None for that of this process."""
        return None

    def _flwr(self, arguments: list[str], stderr: int = subprocess.STDOUT) -> subprocess.Popen[str]:
        # A session of its own: Ctrl-C in the terminal reaches us alone, and we decide what stops when.
        return subprocess.Popen(
            [script("flwr"), *arguments],
            cwd=self._folder(),
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
                if why := self._why_lost():
                    return RunOutcome(run_id, "lost", why)
                if unanswered == _STATUS_TRIES:
                    raise
            else:
                if outcome.status.startswith("finished"):
                    return outcome
            time.sleep(1)

    def _stop_run(self, run_id: int) -> None:
        command = self._flwr(["stop", str(run_id), *self._connection])
        try:
            command.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            pass
        finally:
            command.kill()
            command.wait()


def flower_environment(base: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which commands of Flower run."""
    scripts = str(Path(sys.executable).parent)
    return {
        **base,
        # Flower starts further commands of its own by their bare names.
        "PATH": os.pathsep.join([scripts, base.get("PATH", os.defpath)]),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONUTF8": "1",
    }


def script(name: str) -> str:
    """Return the path of a command of Flower, also when the virtual environment is not activated."""
    scripts = Path(sys.executable).parent
    found = shutil.which(name, path=os.pathsep.join([str(scripts), os.environ.get("PATH", os.defpath)]))
    if found is None:
        raise SuperLinkError(f"there is no command {name} in {scripts} or on PATH; install flwr[simulation]")
    return found


def _lines(stream: IO[str] | None) -> Iterable[tuple[bool, str]]:
    """Yield each line, plain, and whether the run itself wrote it."""
    assert stream is not None
    for line in stream:
        yield line.startswith(OWN_LINE), _ANSI.sub("", line).rstrip()


def _error_text(lines: Sequence[str]) -> str:
    """Return Flower's error message, which it prints in a box; without a box everything it printed."""
    boxed = [line.strip("│ ") for line in lines if line.startswith("│")]
    return "\n".join(boxed or lines).strip()
