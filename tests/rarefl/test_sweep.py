"""Sweeps with a runner that writes what a run would write, in no time."""

import io
import json
import shutil
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import filelock
import pytest
from rich.console import Console

from federation.errors import ConfigError
from rarefl.flower import RunOutcome
from rarefl.settings import PROJECT_ROOT, read_words
from rarefl.sweep import SweepError, SweepOutcome, run_sweep, write_results
from rarefl.sweep_plan import PlannedRun, plan_runs

Behaviour = Callable[[Path], RunOutcome]
ROUND = "[label round 1/1, round 20/20] accuracy 0.500 | 1.0 s a round"
COMPLETED = RunOutcome(1, "finished:completed", "N/A")


def finish(folder: Path) -> RunOutcome:
    label_round = {"label_round": 1, "label_ratio": 0.1, "accuracy": 0.5}
    write_summary(folder, status="finished", seconds=2.0, label_rounds=[label_round])
    return COMPLETED


def write_summary(folder: Path, **content: Any) -> None:
    folder.mkdir(parents=True)
    (folder / "summary.json").write_text(json.dumps(content))


@dataclass
class FakeRunner:
    """Acts out one behaviour a run; finishes when it has none left."""

    behaviours: list[Behaviour] = field(default_factory=list)
    started: list[dict[str, Any]] = field(default_factory=list)
    federation_configs: list[str] = field(default_factory=list)
    opened: int = 0
    closed: int = 0

    @contextmanager
    def open(self) -> Iterator["FakeRunner"]:
        self.opened += 1
        try:
            yield self
        finally:
            self.closed += 1

    def submit(
        self,
        app_dir: Path,
        run_config_file: Path | None = None,
        federation_config: str = "",
        on_line: Callable[[str], None] | None = None,
        on_own_line: Callable[[str], None] | None = None,
    ) -> RunOutcome:
        assert app_dir == PROJECT_ROOT
        assert run_config_file is not None
        assert on_line is not None
        assert on_own_line is not None
        config = tomllib.loads(run_config_file.read_text())
        self.started.append(config)
        self.federation_configs.append(federation_config)
        on_line("INFO :      Starting Flower Simulation")
        for line in (f"results go to {config['output']['dir']}", ROUND):
            on_line(line)
            on_own_line(line)
        behaviour = self.behaviours.pop(0) if self.behaviours else finish
        return behaviour(Path(config["output"]["dir"]))


class Printed:
    """A console whose text can be read."""

    def __init__(self) -> None:
        self._file = io.StringIO()
        self.console = Console(file=self._file, width=200)

    @property
    def text(self) -> str:
        return self._file.getvalue()


@pytest.fixture
def printed() -> Printed:
    return Printed()


@pytest.fixture
def plan(tmp_path: Path) -> Callable[..., list[PlannedRun]]:
    preset = tmp_path / "preset.toml"
    preset.write_text("[data]\nclients = 4\n")

    def make(*settings: str, seeds: str = "1-3", out: Path = tmp_path / "out") -> list[PlannedRun]:
        return plan_runs(read_words([str(preset), *settings]), seeds, out)

    return make


def names(outcome: SweepOutcome) -> list[str]:
    return [run.name for run, _ in outcome.finished]


def test_every_run_gets_its_own_config_and_folder(plan: Callable[..., Any], printed: Printed) -> None:
    runs, runner = plan("query.name=random,fairfal", seeds="1-2"), FakeRunner()

    outcome = run_sweep(runs, runner.open, printed.console, "client-resources-num-cpus=2")

    assert names(outcome) == [run.name for run in runs]
    assert [config["output"]["dir"] for config in runner.started] == [str(run.folder) for run in runs]
    assert [(config["query"]["name"], config["seed"]) for config in runner.started] == [
        ("random", 1),
        ("fairfal", 1),
        ("random", 2),
        ("fairfal", 2),
    ]
    (told,) = set(runner.federation_configs)
    assert told.startswith("num-supernodes=4 client-resources-num-cpus=2 init-args-num-cpus=")
    assert (runner.opened, runner.closed) == (1, 1)


def test_progress_is_shown_and_everything_else_is_in_the_log(
    plan: Callable[..., Any], printed: Printed
) -> None:
    (run,) = plan(seeds="1")

    run_sweep([run], FakeRunner().open, printed.console)

    assert "    [label round 1/1, round 20/20] accuracy 0.500" in printed.text
    assert "[1/1] seed=1: started" in printed.text
    assert "[1/1] seed=1: finished in 0:00:00, about 0:00:00 left" in printed.text
    assert "Starting Flower" not in printed.text
    assert "Starting Flower Simulation\nresults go to" in run.log_file.read_text()
    assert "results go to" not in printed.text


def test_finished_runs_are_skipped(plan: Callable[..., Any], printed: Printed) -> None:
    run_sweep(plan(seeds="1"), FakeRunner().open, printed.console)
    runner = FakeRunner()

    outcome = run_sweep(plan(seeds="1-2"), runner.open, printed.console)

    assert [config["seed"] for config in runner.started] == [2]
    assert names(outcome) == ["seed=1", "seed=2"]
    assert "2 runs in" in printed.text
    assert "1 finished before, 1 to do" in printed.text


def test_no_superlink_when_all_is_finished(plan: Callable[..., Any], printed: Printed) -> None:
    run_sweep(plan(), FakeRunner().open, printed.console)
    runner = FakeRunner()

    outcome = run_sweep(plan(), runner.open, printed.console)

    assert runner.opened == 0
    assert len(outcome.finished) == 3


def test_a_folder_with_another_config_is_never_overwritten(
    plan: Callable[..., Any], printed: Printed, tmp_path: Path
) -> None:
    runs = plan(seeds="1")
    run_sweep(runs, FakeRunner().open, printed.console)
    before = runs[0].config_file.read_bytes()
    other = tmp_path / "other.toml"
    other.write_text("[data]\nclients = 4\nalpha = 7.0\n")
    runner = FakeRunner()

    with pytest.raises(SweepError, match=r"seed=1 holds .*data\.alpha is 0\.3 there and 7\.0 now"):
        run_sweep(plan_runs(read_words([str(other)]), "0-1", runs[0].out), runner.open, printed.console)

    assert runner.started == []
    assert runs[0].config_file.read_bytes() == before


def test_a_folder_without_its_config_is_never_overwritten(plan: Callable[..., Any], printed: Printed) -> None:
    (run,) = plan(seeds="1")
    write_summary(run.folder, status="finished")

    with pytest.raises(SweepError, match="cannot be read"):
        run_sweep([run], FakeRunner().open, printed.console)


def test_a_moved_sweep_is_still_finished(plan: Callable[..., Any], printed: Printed, tmp_path: Path) -> None:
    run_sweep(plan(seeds="1"), FakeRunner().open, printed.console)
    (tmp_path / "out").rename(tmp_path / "moved")
    runner = FakeRunner()

    run_sweep(plan(seeds="1", out=tmp_path / "moved"), runner.open, printed.console)

    assert runner.opened == 0


def test_a_failed_run_is_named_and_the_rest_goes_on(plan: Callable[..., Any], printed: Printed) -> None:
    def fail(folder: Path) -> RunOutcome:
        return RunOutcome(1, "finished:failed", "a loss that is\nnot a number")

    outcome = run_sweep(plan(), FakeRunner([finish, fail]).open, printed.console)

    assert names(outcome) == ["seed=1", "seed=3"]
    assert outcome.failed == {"seed=2": "a loss that is not a number [finished:failed]"}
    assert "seed=2: FAILED" in printed.text
    assert not outcome.interrupted


def test_the_runs_own_reason_comes_before_flowers(plan: Callable[..., Any], printed: Printed) -> None:
    def fail(folder: Path) -> RunOutcome:
        write_summary(folder, status="failed", reason="train.lr = 90 gave a loss of nan")
        return RunOutcome(1, "finished:failed", "exit code 1")

    outcome = run_sweep(plan(seeds="1"), FakeRunner([fail]).open, printed.console)

    assert outcome.failed == {"seed=1": "train.lr = 90 gave a loss of nan [finished:failed]"}


def test_a_run_without_a_result_failed_whatever_flower_says(
    plan: Callable[..., Any], printed: Printed
) -> None:
    outcome = run_sweep(plan(seeds="1"), FakeRunner([lambda folder: COMPLETED]).open, printed.console)

    assert outcome.failed == {"seed=1": "it ended without a result [finished:completed]"}


@pytest.mark.parametrize("half", ['{"status": "running"}', '{"status": "fin', "[]"])
def test_an_unfinished_folder_that_cannot_go_on_is_moved_aside_and_run_again(
    plan: Callable[..., Any], printed: Printed, half: str
) -> None:
    def die(folder: Path) -> RunOutcome:
        folder.mkdir(parents=True)
        (folder / "summary.json").write_text(half)
        return RunOutcome(1, "lost", "the SuperLink ended")

    (run,) = plan(seeds="1")
    run_sweep([run], FakeRunner([die]).open, printed.console)
    run_sweep([run], FakeRunner([die]).open, printed.console)

    outcome = run_sweep([run], FakeRunner().open, printed.console)

    assert names(outcome) == ["seed=1"]
    assert (run.out / "seed=1.unfinished-1" / "summary.json").read_text() == half
    assert (run.out / "seed=1.unfinished-2").is_dir()
    assert "seed=1 cannot go on; moved it to seed=1.unfinished-1" in printed.text
    assert run.log_file.read_text().count("--- ") == 3


def test_an_unfinished_run_goes_on_in_its_folder(plan: Callable[..., Any], printed: Printed) -> None:
    def die(folder: Path) -> RunOutcome:
        write_summary(folder, status="running")
        (folder / "config.toml").write_text("")
        (folder / "checkpoint").mkdir()
        (folder / "checkpoint" / "run.json").write_text("{}")
        return RunOutcome(1, "lost", "the SuperLink ended")

    def end(folder: Path) -> RunOutcome:
        shutil.rmtree(folder)
        return finish(folder)

    (run,) = plan(seeds="1")
    run_sweep([run], FakeRunner([die]).open, printed.console)
    runner = FakeRunner([end])

    outcome = run_sweep([run], runner.open, printed.console)

    assert names(outcome) == ["seed=1"]
    folders = {key: runner.started[0]["output"][key] for key in ("dir", "resume")}
    assert folders == {"dir": str(run.folder), "resume": str(run.folder)}
    assert "[1/1] seed=1: goes on" in printed.text
    again = FakeRunner()
    assert names(run_sweep([run], again.open, printed.console)) == ["seed=1"]
    assert again.opened == 0


def test_ctrl_c_stops_and_the_same_call_goes_on(plan: Callable[..., Any], printed: Printed) -> None:
    def interrupted(folder: Path) -> RunOutcome:
        write_summary(folder, status="running")
        raise KeyboardInterrupt

    runner = FakeRunner([finish, interrupted])
    outcome = run_sweep(plan(), runner.open, printed.console)

    assert outcome.interrupted
    assert names(outcome) == ["seed=1"]
    assert (len(runner.started), runner.closed) == (2, 1)

    again = FakeRunner()
    outcome = run_sweep(plan(), again.open, printed.console)

    assert [config["seed"] for config in again.started] == [2, 3]
    assert names(outcome) == ["seed=1", "seed=2", "seed=3"]


def test_a_bad_federation_config_is_named_before_anything_runs(
    plan: Callable[..., Any], printed: Printed
) -> None:
    runner = FakeRunner()

    with pytest.raises(ConfigError, match="nonsense"):
        run_sweep(plan(), runner.open, printed.console, "nonsense=3")

    assert runner.opened == 0


def test_two_sweeps_do_not_share_a_folder(plan: Callable[..., Any], printed: Printed) -> None:
    runs = plan()
    runs[0].out.mkdir()

    with (
        filelock.FileLock(runs[0].out / ".sweep.lock"),
        pytest.raises(SweepError, match="another sweep works in"),
    ):
        run_sweep(runs, FakeRunner().open, printed.console)


def test_results_are_written_and_printed(plan: Callable[..., Any], printed: Printed) -> None:
    runs = plan("query.name=random,fairfal", seeds="1")

    def fail(folder: Path) -> RunOutcome:
        return RunOutcome(1, "refused", "no such key")

    outcome = run_sweep(runs, FakeRunner([finish, fail]).open, printed.console)
    write_results(outcome, runs, "rarefl sweep preset.toml", printed.console)

    header, *rows = (runs[0].out / "results.csv").read_text().splitlines()
    assert header.startswith("run,query.name,seed,label_round,label_ratio,labelled,accuracy,")
    assert [row.split(",seed=")[0] for row in rows] == ['"query.name=random']
    page = (runs[0].out / "results.md").read_text()
    assert "    rarefl sweep preset.toml" in page
    assert "1 of 2 runs are finished" in page
    assert "| random | 0.1 | 50.00 |" in page
    assert "* `query.name=fairfal,seed=1`: no such key [refused]" in page
    assert "50.00" in printed.text
    assert "Not everybody" not in page


def test_results_say_who_was_left_out(plan: Callable[..., Any], printed: Printed) -> None:
    runs = plan("query.name=random", seeds="1")
    told = {"asked": 3, "answered": 2, "left_out": [{"site": "site-1", "label_round": 2}]}

    def finish_without_one(folder: Path) -> RunOutcome:
        ended = finish(folder)
        summary = json.loads((folder / "summary.json").read_text())
        (folder / "summary.json").write_text(json.dumps(summary | {"participation": told}))
        return ended

    write_results(
        run_sweep(runs, FakeRunner([finish_without_one]).open, printed.console), runs, "x", printed.console
    )
    line = "query.name=random,seed=1: asked 3 times, answered 2; site-1 left out of label round 2"
    assert f"* {line}" in (runs[0].out / "results.md").read_text()
    assert line in printed.text
