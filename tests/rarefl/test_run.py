"""``rarefl run`` with a runner that writes what a run would write, in no time."""

import io
import json
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import rarefl.run
from federation.errors import ConfigError, RunFolderError
from rarefl.flower import RunOutcome
from rarefl.run import RunFinished, check_connection, run_here, run_there
from rarefl.settings import read_words

COMPLETED = RunOutcome(1, "finished:completed", "N/A")
Behaviour = Callable[[Path, Callable[[str], None]], RunOutcome]


class FakeRunner:
    """Acts out a run in its folder; ``tell`` writes one of the run's own lines."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.config: dict[str, Any] = {}
        self.federation = ""
        self.open_now = False

    @contextmanager
    def open(self, log: Path) -> Iterator["FakeRunner"]:
        assert log.parent.is_dir()
        self.open_now = True
        try:
            yield self
        finally:
            self.open_now = False

    def submit(
        self,
        app_dir: Path,
        run_config_file: Path | None = None,
        federation_config: str = "",
        on_line: Callable[[str], None] | None = None,
        on_own_line: Callable[[str], None] | None = None,
    ) -> RunOutcome:
        assert run_config_file is not None
        assert on_line is not None
        assert on_own_line is not None
        self.config = tomllib.loads(run_config_file.read_text())
        self.federation = federation_config
        on_line("INFO :      Starting Flower Simulation")

        def tell(line: str) -> None:
            on_line(line)
            on_own_line(line)

        output = self.config["output"]
        return self.behaviour(Path(output["resume"] or output["dir"]), tell)


def write_summary(folder: Path, **content: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.json").write_text(json.dumps(content))


def begin(folder: Path) -> None:
    """Write what a run needs to go on."""
    write_summary(folder, status="running")
    (folder / "config.toml").write_text("")
    (folder / "checkpoint").mkdir(exist_ok=True)
    (folder / "checkpoint" / "run.json").write_text("{}")


def finish(folder: Path, tell: Callable[[str], None]) -> RunOutcome:
    tell("[round 1/1] accuracy 0.500")
    write_summary(folder, status="finished")
    tell("results are in it")
    return COMPLETED


@pytest.fixture
def invoke(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[RunFinished, str, FakeRunner]]:
    """Return a function that runs and gives how it ended, what was printed, and the runner."""
    monkeypatch.setattr(rarefl.run, "DEFAULT_PARENT", str(tmp_path / "runs"))

    def call(behaviour: Behaviour, *words: str, there: str = "") -> tuple[RunFinished, str, FakeRunner]:
        given, runner, printed = read_words(words), FakeRunner(behaviour), io.StringIO()
        console = Console(file=printed, width=60)
        if there:
            ended = run_there(given.config(), given.name, there, "", console, runner)
        else:
            ended = run_here(given.config(), given.name, "num-supernodes=5", console, runner.open)
        assert not runner.open_now
        return ended, printed.getvalue(), runner

    return call


def only_folder(tmp_path: Path) -> Path:
    (folder,) = (tmp_path / "runs").iterdir()
    return folder


def test_a_run_that_finishes(invoke: Callable[..., Any], tmp_path: Path) -> None:
    ended, told, runner = invoke(finish, "fedraw-digits", "seed=4")

    folder = only_folder(tmp_path)
    assert folder.name.endswith("-fedraw-digits-seed4")
    assert ended == RunFinished(0)
    assert (runner.config["output"]["dir"], runner.config["seed"]) == (str(folder), 4)
    assert runner.federation == "num-supernodes=5"
    assert "[round 1/1] accuracy 0.500\nresults are in it\n" in told
    assert f"whose output goes to {folder / 'flower.log'}\n" in told  # not broken at the console's width
    assert "INFO" not in told
    log = (folder / "flower.log").read_text()
    assert "INFO :      Starting Flower Simulation\n[round 1/1] accuracy 0.500\n" in log


def test_a_folder_that_was_given_is_taken(invoke: Callable[..., Any], tmp_path: Path) -> None:
    folder = tmp_path / "mine" / "one"
    ended, _, runner = invoke(finish, f"output.dir={folder}")
    assert ended.status == 0
    assert runner.config["output"]["dir"] == str(folder)
    assert (folder / "flower.log").is_file()


def test_a_folder_that_cannot_be_made_is_named(invoke: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunFolderError, match=r"output\.dir: cannot write to .*file/in"):
        invoke(finish, f"output.dir={tmp_path / 'file' / 'in'}")


def test_a_run_that_fails_tells_its_reason_once(invoke: Callable[..., Any], tmp_path: Path) -> None:
    def fail(folder: Path, tell: Callable[[str], None]) -> RunOutcome:
        begin(folder)
        write_summary(folder, status="failed", reason="NonFiniteLossError: train.lr = 90\n is too high")
        tell("[round 1/1] accuracy 0.100")
        tell("the run failed: train.lr = 90")
        tell(" is too high")
        return RunOutcome(1, "finished:failed", "exit code 1")

    ended, told, _ = invoke(fail)

    folder = only_folder(tmp_path)
    assert ended.status == 1
    assert ended.error == (
        "NonFiniteLossError: train.lr = 90 is too high [finished:failed]; all that Flower and Ray said is in "
        f"{folder / 'flower.log'}; `rarefl run --resume {folder}` goes on from its last checkpoint"
    )
    assert told.endswith("[round 1/1] accuracy 0.100\n")
    assert " is too high\n" in (folder / "flower.log").read_text()


@pytest.mark.parametrize("summary", [{}, {"status": "running"}, {"status": "diverged", "reason": "NaN"}])
def test_a_run_without_a_result_failed_whatever_flower_says(
    invoke: Callable[..., Any], summary: dict[str, str]
) -> None:
    def end(folder: Path, tell: Callable[[str], None]) -> RunOutcome:
        write_summary(folder, **summary)
        return COMPLETED

    ended, _, _ = invoke(end)
    reason = summary.get("reason", "it ended without a result")
    assert ended.status == 1
    assert ended.error.startswith(f"{reason} [finished:completed]; all that Flower")
    assert "--resume" not in ended.error


def test_a_run_that_flower_refuses_tells_flowers_reason(invoke: Callable[..., Any]) -> None:
    ended, _, _ = invoke(lambda folder, tell: RunOutcome(None, "refused", "[code: 10]\nInvalid FAB"))
    assert (ended.status, ended.error.split(";")[0]) == (1, "[code: 10] Invalid FAB [refused]")


def test_ctrl_c_says_what_goes_on(invoke: Callable[..., Any], tmp_path: Path) -> None:
    def interrupt(folder: Path, tell: Callable[[str], None]) -> RunOutcome:
        begin(folder)
        raise KeyboardInterrupt

    ended, told, _ = invoke(interrupt)
    assert ended == RunFinished(130)
    assert told.endswith(f"checkpoint: rarefl run --resume {only_folder(tmp_path)}\n")

    def too_early(folder: Path, tell: Callable[[str], None]) -> RunOutcome:
        raise KeyboardInterrupt

    ended, told, _ = invoke(too_early, f"output.dir={tmp_path / 'early'}")
    assert ended == RunFinished(130)
    assert "before the run had begun" in told


def test_a_run_goes_on_in_its_folder(invoke: Callable[..., Any], tmp_path: Path) -> None:
    begin(tmp_path / "run")
    ended, _, runner = invoke(finish, f"output.resume={tmp_path / 'run'}")
    assert ended.status == 0
    assert (runner.config["output"]["dir"], runner.config["output"]["resume"]) == ("", str(tmp_path / "run"))
    assert (tmp_path / "run" / "flower.log").is_file()


def test_on_a_superlink_elsewhere_flowers_word_must_do(invoke: Callable[..., Any], tmp_path: Path) -> None:
    def end(folder: Path, tell: Callable[[str], None]) -> RunOutcome:
        tell("results go to /far/away")
        return COMPLETED

    ended, told, runner = invoke(end, there="hospitals")
    folder = only_folder(tmp_path)
    assert ended == RunFinished(0)
    assert runner.config["output"]["dir"] == ""  # the server's machine chooses
    assert folder.name.endswith("-defaults-seed1-hospitals")
    assert "results go to /far/away\n" in told
    assert "Starting Flower Simulation" in (folder / "flower.log").read_text()

    ended, _, _ = invoke(
        lambda folder, tell: RunOutcome(1, "finished:failed", "no clients"), there="hospitals"
    )
    assert ended.error.startswith("no clients [finished:failed]; all that came is in ")

    def interrupt(folder: Path, tell: Callable[[str], None]) -> RunOutcome:
        raise KeyboardInterrupt

    ended, told, _ = invoke(interrupt, there="hospitals")
    assert ended == RunFinished(130)
    assert "output.resume=FOLDER" in told


def test_connections_are_those_of_flowers_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLWR_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=r"cannot read .*config\.toml"):
        check_connection("hospitals")
    (tmp_path / "config.toml").write_text(
        '[superlink]\ndefault = "local"\n[superlink.local]\n[superlink.hospitals]\naddress = "x:1"\n'
    )
    check_connection("hospitals")
    with pytest.raises(
        ConfigError, match=r"hospital'; did you mean 'hospitals'\? \(there are local, hospitals\)"
    ):
        check_connection("hospital")
