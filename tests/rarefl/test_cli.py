"""The command line as it is typed: from any folder, beside any other package, with the right exit status."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
import torch
from typer.testing import CliRunner

import rarefl.superlink
from rarefl.cli import app
from rarefl.flower import RunOutcome

ROOT = Path(__file__).resolve().parents[2]
PRESET = ROOT / "conf" / "fairfal-digits.toml"
MAIN = "from rarefl.cli import main; main()"


def run(*arguments: str, cwd: Path, path: list[Path], code: str = MAIN) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path)), "COLUMNS": "120"}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


def test_check_works_in_any_folder(tmp_path: Path) -> None:
    result = run("check", "fairfal-digits", "data.alpha=7", "--set", "seed=2", cwd=tmp_path, path=[ROOT])

    assert result.returncode == 0, result.stderr
    rows = {cells[1]: cells[2:4] for line in result.stdout.splitlines() if len(cells := line.split("│")) > 3}
    rows = {key.strip(): [cell.strip() for cell in cells] for key, cells in rows.items()}
    assert rows["data.alpha"] == ["7.0", "given"]
    assert rows["seed"] == ["2", "given"]
    assert rows["data.clients"] == ["5", "fairfal-digits"]
    assert rows["train.momentum"] == ["0.9", "default"]
    assert rows["data.name"] == ['"digits"', "fairfal-digits"]


WRONG = [
    (["data.alhpa=1"], "did you mean data.alpha?"),
    (["data.alpha=-1"], "data.alpha = -1.0 is not allowed"),
    (["query.name=entropi"], "(did you mean 'entropy'?)"),
    (["query.name"], "cannot read query.name"),
    (["output.dir=results"], "output.dir = 'results' is relative"),
    (["output.resume=results"], "output.resume = 'results' is relative"),
    (["output.resume=/nowhere"], "/nowhere holds no run that can go on"),
    (["output.dir=/etc/passwd/here"], "cannot write to /etc/passwd/here"),
    (["clock.delays=from-list"], "needs clock.delays-file"),
    (["strategy.name=fedbuff", "clock.availability=trace", "clock.availability-file=/no"], "/no"),
]


@pytest.mark.parametrize("command", ["check", "run"])
@pytest.mark.parametrize(("settings", "said"), [*WRONG, (["data.alpha=1,2"], "data.alpha has 2 values")])
def test_check_and_run_name_what_is_wrong_in_one_line(command: str, settings: list[str], said: str) -> None:
    result = CliRunner().invoke(app, [command, str(PRESET), *settings])

    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", ["check", "run"])
def test_a_finished_run_is_never_written_over(command: str, tmp_path: Path) -> None:
    finish(tmp_path / "run", 1)
    result = CliRunner().invoke(app, [command, f"output.dir={tmp_path / 'run'}"])
    assert result.exit_code == 2
    assert "already holds a finished run" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["data.root=/nowhere", "data.name=fashion-mnist", "train.flip=true"], "/nowhere"),
        (["data.clients=5000"], "cannot be dealt to 5000 clients"),
        (["--resume", "/nowhere"], "--resume /nowhere: there is no run"),
        (["--federation-config", "num-supernodes=3"], "it follows data.clients"),
        (["--federation", "hospitals"], "hospitals"),
        (["--dry-run", "--federation", "hospitals"], "leave --federation out"),
    ],
)
def test_a_run_that_cannot_be_is_not_started(
    arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FLWR_HOME", str(tmp_path))
    result = CliRunner().invoke(app, ["run", *arguments])
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stdout == ""


def test_gpus_that_are_not_there_are_named_before_anything_starts(
    sweep: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    shares = ["--federation-config", "client-resources-num-gpus=0.1"]
    for result in (CliRunner().invoke(app, ["run", *shares]), sweep(finish, *shares)):
        assert result.exit_code == 2
        assert "PyTorch sees no GPU on this machine" in result.stderr
        assert len(result.stderr.splitlines()) == 1


def test_our_datasets_wins_over_another_package_of_that_name(tmp_path: Path) -> None:
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "__init__.py").write_text("raise RuntimeError('the other datasets package')\n")
    code = (
        "from rarefl.cli import main\n"
        "try: main()\n"
        "finally:\n"
        "    import datasets\n"
        "    print('imported', datasets.__file__)\n"
    )

    result = run("check", str(PRESET), cwd=tmp_path, path=[tmp_path, ROOT], code=code)

    assert result.returncode == 0, result.stderr
    assert f"imported {ROOT / 'datasets' / '__init__.py'}" in result.stdout


def test_a_wheel_says_that_the_command_needs_a_clone(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "rarefl", tmp_path / "rarefl", ignore=shutil.ignore_patterns("__pycache__"))

    result = run("check", str(PRESET), cwd=tmp_path, path=[tmp_path])

    assert result.returncode == 1
    assert "works from a clone of the project" in result.stderr
    assert len(result.stderr.splitlines()) == 1


class FakeSuperLink:
    """Takes the place of the real one; what a run does is given by its seed."""

    behaviour: Callable[[Path, int], RunOutcome]

    def __init__(self, home: Path, log_file: Path) -> None:
        assert ROOT not in home.parents

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def submit(
        self, app_dir: Path, config_file: Path, federation_config: str, on_line: Any, on_own_line: Any
    ) -> RunOutcome:
        config = tomllib.loads(config_file.read_text())
        return type(self).behaviour(Path(config["output"]["dir"]), config["seed"])


def finish(folder: Path, seed: int) -> RunOutcome:
    folder.mkdir()
    label_round = {"label_round": 1, "label_ratio": 0.1, "accuracy": seed / 10}
    summary = {"status": "finished", "seconds": 5.0, "label_rounds": [label_round]}
    (folder / "summary.json").write_text(json.dumps(summary))
    return RunOutcome(1, "finished:completed", "")


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.setattr(rarefl.superlink, "LocalSuperLink", FakeSuperLink)

    def invoke(behaviour: Callable[[Path, int], RunOutcome], *arguments: str) -> Any:
        monkeypatch.setattr(FakeSuperLink, "behaviour", staticmethod(behaviour), raising=False)
        out = ["--out", str(tmp_path / "out")]
        return CliRunner().invoke(app, ["sweep", str(PRESET), "--seeds", "1-2", *out, *arguments])

    return invoke


def test_sweep_ends_with_a_table(sweep: Callable[..., Any], tmp_path: Path) -> None:
    result = sweep(finish, "query.name=random,fairfal", "--set", "train.rounds=7")

    assert result.exit_code == 0, result.output
    assert "15.00 ± 7.07" in (tmp_path / "out" / "results.md").read_text()
    assert (
        f"query.name=random,fairfal --set train.rounds=7 --seeds 1-2 --out {tmp_path / 'out'}"
        in (tmp_path / "out" / "results.md").read_text()
    )
    assert (tmp_path / "out" / "train.rounds=7,query.name=random,seed=1" / "summary.json").is_file()


def test_sweep_with_a_failed_run_exits_with_1(sweep: Callable[..., Any], tmp_path: Path) -> None:
    def behaviour(folder: Path, seed: int) -> RunOutcome:
        return finish(folder, seed) if seed == 2 else RunOutcome(1, "finished:failed", "no clients")

    result = sweep(behaviour)

    assert result.exit_code == 1
    assert "seed=1: FAILED" in result.stdout
    assert (tmp_path / "out" / "seed=2" / "summary.json").is_file()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_sweep_stops_cleanly_on_signals_and_goes_on_later(
    sweep: Callable[..., Any], tmp_path: Path, number: signal.Signals
) -> None:
    def behaviour(folder: Path, seed: int) -> RunOutcome:
        if seed == 2:
            signal.raise_signal(number)
        return finish(folder, seed)

    # A test run in the background inherits signals that are ignored.
    usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    inherited = signal.signal(number, usual)
    try:
        stopped = sweep(behaviour)
        finished = sweep(finish)
        handler = signal.getsignal(number)
    finally:
        signal.signal(number, inherited)

    assert stopped.exit_code == 130
    assert "stopped; the same command goes on from here" in stopped.stdout
    assert "1 finished before, 1 to do" in finished.stdout
    assert finished.exit_code == 0
    assert handler is usual


def test_sweep_names_a_wrong_run_before_it_makes_anything(sweep: Callable[..., Any], tmp_path: Path) -> None:
    result = sweep(finish, "--set", "query.name=random,fairfall")

    assert result.exit_code == 2
    assert "'fairfall' is not allowed" in result.stderr
    assert not (tmp_path / "out").exists()
