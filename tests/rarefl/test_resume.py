"""A server that is killed at any moment of a run and resumed ends with the files of an undisturbed run.

A kill is an exception, before which the run's folder is copied as it lies on the disk: what the exception
still lets the server write is not in the copy, as it would not be after ``kill -9``.
"""

import itertools
import json
import os
import shutil
import threading
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import Context, Message, RecordDict
from flwr.serverapp import ServerApp
from hypothesis import given, settings
from hypothesis import strategies as st

import federation.runs.checkpoints
from federation.config.run_config import default_run_config
from federation.errors import ConfigError, LabelsLostError, RunFolderError
from federation.runs.checkout import read_commit
from federation.runs.run_folder import RunFolder
from fedraw.registry import STRATEGIES
from rarefl.client_app import app as client_app
from rarefl.server_app import app as server_app
from tests.event_files import scalars
from tests.inprocess import InProcessGrid

FAIRFAL = {
    "data.clients": 2,
    "data.alpha": 0.5,
    "train.rounds": 2,
    "train.local-epochs": 1,
    "train.local-only-epochs": 1,
    "query.last-label-ratio": 0.2,
    "evaluate.every": 1,
}
FEDRAW = FAIRFAL | {
    "app": "fedraw",
    "data.clients": 3,
    "data.imbalance": 50.0,
    "strategy.buffer-size": 2,
    "strategy.concurrency": 2,
    "clock.delays": "lognormal",
    "train.rounds": 3,
}
ROOT = Path(__file__).parents[2]
TABLES = ("queries.csv", "rounds.csv", "events.csv", "influence.csv", "confusion.csv")


class KilledError(BaseException):
    """Stands for ``kill -9``."""


class Moments:
    """Counts the moments at which a server can be killed, and kills it at one of them."""

    def __init__(self) -> None:
        self.count = 0
        self.last: int | None = None
        self.kill: Callable[[], None] = lambda: None

    def passes(self) -> None:
        """One moment has passed, unless it is the last."""
        if threading.current_thread() is not threading.main_thread():
            return
        self.count += 1
        if self.count == self.last:
            self.kill()
            raise KilledError


class MortalGrid(InProcessGrid):
    """A grid whose every message and reply is a moment at which the server can be killed."""

    def __init__(self, moments: Moments, clients: int, config: dict[str, Any]) -> None:
        super().__init__(client_app, clients, config)
        self.moments = moments

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Send one message after the other."""
        ids = []
        for message in list(messages):
            self.moments.passes()
            ids += super().push_messages([message])
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Take one reply after the other."""
        replies = super().pull_messages(message_ids)
        for _ in replies:
            self.moments.passes()
        return replies


@pytest.fixture(autouse=True, scope="module")
def moments() -> Iterator[Moments]:
    """Moments between the messages and before and after every change of a file; plots take too long."""
    counter = Moments()
    replace, sync = os.replace, os.fsync

    def replace_at_a_moment(*paths: Any) -> None:
        counter.passes()
        replace(*paths)
        counter.passes()

    def sync_at_a_moment(descriptor: int) -> None:
        sync(descriptor)
        counter.passes()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", replace_at_a_moment)
        patch.setattr(os, "fsync", sync_at_a_moment)
        patch.setattr(RunFolder, "save_figure", lambda *_: None)
        yield counter


def run(
    moments: Moments, config: dict[str, Any], dies_at: int | None = None, image: Path | None = None
) -> MortalGrid:
    """Run; with ``dies_at``, kill the server at that moment and leave in ``image`` what is on the disk."""
    whole = default_run_config() | config
    grid = MortalGrid(moments, whole["data.clients"], whole)
    folder = Path(whole["output.resume"] or whole["output.dir"])

    def kill() -> None:
        grid.pool.shutdown()  # clients live on and finish what they were asked for
        assert image is not None
        shutil.copytree(folder, image)

    moments.count, moments.last, moments.kill = 0, dies_at, kill
    context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=whole)
    app: ServerApp = server_app
    app(grid=grid, context=context)
    return grid


def summary(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "summary.json").read_text())


def assert_same(folder: Path, other: Path) -> None:
    """Assert that two runs left the same, but for times and for where they ran."""
    for name in TABLES:
        assert (folder / name).exists() == (other / name).exists(), name
        if (folder / name).exists():
            assert (folder / name).read_bytes() == (other / name).read_bytes(), name
    first, second = (torch.load(each / "final.pt", weights_only=True) for each in (folder, other))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[key], second[key]) for key in first)
    told, again = summary(folder), summary(other)
    for each in (told, again):
        del each["seconds"], each["provenance"]
        each.get("influence", {}).pop("seconds_per_flush", None)
    assert told == again


_names = itertools.count()


class Reference:
    """An undisturbed run, and copies of it that are killed and resumed."""

    def __init__(self, moments: Moments, root: Path, config: dict[str, Any]) -> None:
        self.moments, self.root, self.config = moments, root, config
        self.folder = root / "undisturbed"
        run(moments, config | {"output.dir": str(self.folder)})
        self.count = moments.count

    def killed(self, *moments: int) -> Path:
        """Return the folder of a run that is killed at these moments, each counted from its (re)start."""
        name = next(_names)
        config = {"output.dir": str(self.root / f"{name}-0")}
        for number, moment in enumerate(moments, start=1):
            image = self.root / f"{name}-{number}"
            with pytest.raises(KilledError):
                run(self.moments, self.config | config, moment, image)
            config = {"output.resume": str(image)}
        return image

    def resumed(self, image: Path, **overrides: Any) -> Path:
        """Let a killed run go on to its end."""
        run(self.moments, self.config | {"output.resume": str(image)} | overrides)
        return image


@pytest.fixture(scope="module")
def references(moments: Moments, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Reference]:
    """Return the undisturbed run of a config, made once."""
    made: dict[str, Reference] = {}

    def reference(config: dict[str, Any]) -> Reference:
        key = json.dumps([config, federation.runs.checkpoints.SHARE])
        if key not in made:
            made[key] = Reference(moments, tmp_path_factory.mktemp("runs"), config)
        return made[key]

    return reference


@pytest.fixture(autouse=True)
def _only_needed_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """How many moments a run has must not depend on how fast it is."""
    monkeypatch.setattr(federation.runs.checkpoints, "SHARE", -1.0)


@pytest.fixture(params=["always", "when-needed"])
def pace(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints after every step, or only those that a run cannot do without."""
    if request.param == "always":
        monkeypatch.setattr(federation.runs.checkpoints, "SHARE", 1e9)


@pytest.mark.usefixtures("pace")
@pytest.mark.parametrize(
    "settings_of_the_variant",
    [
        {"evaluate.clients": True},
        {"strategy.name": "fedadam", "strategy.participation": 0.5},
        {"strategy.name": "fedraw", "strategy.buffer-size": 2},
    ],
    ids=lambda value: value.get("strategy.name", "fedavg"),
)
@given(data=st.data())
@settings(max_examples=4)
def test_label_rounds_go_on_after_a_kill_at_any_moment(
    references: Callable[..., Reference], settings_of_the_variant: dict[str, Any], data: st.DataObject
) -> None:
    reference = references(FAIRFAL | settings_of_the_variant)
    moment = data.draw(st.integers(12, reference.count - 12))
    assert_same(reference.resumed(reference.killed(moment)), reference.folder)


@given(data=st.data())
@settings(max_examples=3)
def test_a_resumed_run_is_killed_again(references: Callable[..., Reference], data: st.DataObject) -> None:
    reference = references(FAIRFAL | {"evaluate.clients": True})
    moments = data.draw(st.lists(st.integers(12, 40), min_size=2, max_size=3))
    assert_same(reference.resumed(reference.killed(*moments)), reference.folder)


@pytest.mark.usefixtures("pace")
@pytest.mark.parametrize("name", STRATEGIES)
@given(data=st.data())
@settings(max_examples=2)
def test_every_strategy_goes_on_after_a_kill_at_any_moment(
    references: Callable[..., Reference], name: str, data: st.DataObject
) -> None:
    reference = references(FEDRAW | {"strategy.name": name})
    moment = data.draw(st.integers(12, reference.count - 12))
    assert_same(reference.resumed(reference.killed(moment)), reference.folder)


# --- what a client keeps


def test_a_client_that_lost_its_labels_is_named_before_any_client_trains(
    references: Callable[..., Reference], state_folder: Path
) -> None:
    reference = references(FAIRFAL)
    image = reference.killed(reference.count - 40)
    key = json.loads((image / "checkpoint" / "run.json").read_text())["key"]
    (state_folder / key / "site-01" / "labels.json").unlink()
    results = summary(image)["label_rounds"]
    assert results
    with pytest.raises(LabelsLostError, match=rf"^site-01 has 0 labels where \d+ are due.*{key}"):
        reference.resumed(image)
    told = summary(image)
    assert (told["status"], told["label_rounds"]) == ("failed", results)


def test_a_new_run_never_sees_the_labels_of_an_old_one(
    references: Callable[..., Reference], moments: Moments, tmp_path: Path
) -> None:
    reference = references(FAIRFAL)
    run(moments, FAIRFAL | {"output.dir": str(tmp_path)})
    assert_same(tmp_path, reference.folder)


# --- checkpoints


def checkpoints(folder: Path) -> list[Path]:
    return sorted((folder / "checkpoint").glob("*.json"))[:-1]  # run.json is the last


def damage(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(bytes(content))


@pytest.mark.parametrize("kind", ["json", "pt"])
@pytest.mark.parametrize(
    "config", [FAIRFAL, FEDRAW | {"strategy.name": "fedbuff"}], ids=["fairfal", "fedraw"]
)
def test_a_damaged_checkpoint_gives_way_to_the_one_before(
    references: Callable[..., Reference],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    config: dict[str, Any],
    kind: str,
) -> None:
    monkeypatch.setattr(federation.runs.checkpoints, "SHARE", 1e9)
    reference = references(config)
    image = reference.killed(reference.count - 30)
    newer = checkpoints(image)[-1]
    damage(newer.with_suffix(f".{kind}"))
    reference.resumed(image)
    told = capsys.readouterr().out
    assert "a checkpoint is damaged and left out" in told
    assert newer.name in told
    assert_same(image, reference.folder)


def test_without_a_sound_checkpoint_the_run_does_not_start(references: Callable[..., Reference]) -> None:
    reference = references(FAIRFAL)
    image = reference.killed(reference.count - 30)
    rows = (image / "rounds.csv").read_bytes()
    for file in checkpoints(image):
        damage(file)
    names = [file.name for file in checkpoints(image)]
    with pytest.raises(RunFolderError, match=rf"every checkpoint is damaged: .*{names[1]}.*{names[0]}"):
        reference.resumed(image)
    assert (image / "rounds.csv").read_bytes() == rows


# --- settings of a resumed run


def test_other_settings_are_refused_with_both_values(references: Callable[..., Reference]) -> None:
    reference = references(FAIRFAL)
    image = reference.killed(40)
    before = {path: path.read_bytes() for path in image.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError) as caught:
        reference.resumed(
            image, **{"train.lr": 0.5, "train.rounds": 9, "query.kappa": 2.0, "nodes.timeout": 9.0}
        )
    for part in (
        "train.lr is 0.01 there and 0.5 now",
        "train.rounds is 2 there and 9 now",
        "query.kappa is 4.0 there and 2.0 now",
    ):
        assert part in str(caught.value)
    assert "nodes.timeout" not in str(caught.value)
    assert {path: path.read_bytes() for path in image.rglob("*") if path.is_file()} == before
    reference.resumed(image, **{"nodes.timeout": 9.0})
    assert_same(image, reference.folder)


def test_a_finished_run_of_label_rounds_is_made_longer(
    references: Callable[..., Reference], tmp_path: Path
) -> None:
    longer = references(FAIRFAL | {"query.last-label-ratio": 0.3})
    reference = references(FAIRFAL)
    shutil.copytree(reference.folder, tmp_path / "run")
    with pytest.raises(
        RunFolderError, match=r"is finished; to make it longer, raise query\.last-label-ratio"
    ):
        reference.resumed(tmp_path / "run")
    reference.resumed(tmp_path / "run", **{"query.last-label-ratio": 0.3})
    assert_same(tmp_path / "run", longer.folder)


@pytest.mark.parametrize("name", ["fedyogi", "ca2fl"])
def test_a_finished_training_is_made_longer(
    references: Callable[..., Reference], tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a rate that never decays and every version measured, it is as if it had been longer at once."""
    config = FEDRAW | {"strategy.name": name, "train.lr-decay": 1.0}
    longer, reference = references(config | {"train.rounds": 5}), references(config)
    shutil.copytree(reference.folder, tmp_path / "run")
    with pytest.raises(ConfigError, match=r"train\.rounds is 3 there and 2 now"):
        reference.resumed(tmp_path / "run", **{"train.rounds": 2})
    reference.resumed(tmp_path / "run", **{"train.rounds": 5})
    assert "learning rate of the longer schedule" in capsys.readouterr().out
    assert_same(tmp_path / "run", longer.folder)


@pytest.mark.parametrize("before_the_end", range(12, 30, 3))
def test_a_run_is_killed_between_its_last_version_and_its_end(
    references: Callable[..., Reference], before_the_end: int
) -> None:
    reference = references(FEDRAW | {"strategy.name": "fedbuff"})
    image = reference.killed(reference.count - before_the_end)
    assert_same(reference.resumed(image), reference.folder)


def test_on_a_wall_clock_a_run_comes_to_its_end_and_measures_its_last_version(
    references: Callable[..., Reference],
) -> None:
    reference = references(FEDRAW | {"strategy.name": "fedraw", "clock.name": "wall"})
    for moment in (reference.count // 2, 3 * reference.count // 4):
        image = reference.resumed(reference.killed(moment))
        versions = [line.split(",")[0] for line in (image / "rounds.csv").read_text().splitlines()]
        assert versions[-1] == str(summary(image)["result"]["version"]) == "4"
        assert len(set(versions)) == len(versions)


@pytest.mark.usefixtures("pace")
@pytest.mark.parametrize("config", [FAIRFAL, FEDRAW | {"strategy.name": "fedraw"}], ids=["fairfal", "fedraw"])
def test_events_of_a_resumed_run_are_those_of_an_undisturbed_one(
    references: Callable[..., Reference], config: dict[str, Any]
) -> None:
    reference = references(config | {"output.tensorboard": True})
    expected = scalars(reference.folder)
    rows = (reference.folder / "rounds.csv").read_text().splitlines()[1:]
    assert len(expected["measures/accuracy"]) == len(rows)
    assert {tag.split("/")[0] for tag in expected} > {"measures", "class_accuracy", "final"}
    for moment in (reference.count // 2, 3 * reference.count // 4):
        image = reference.killed(moment)
        reference.resumed(image)
        assert scalars(image) == expected
        steps = [step for step, _ in expected["measures/accuracy"]]
        assert steps == sorted(set(steps))


def test_a_folder_that_holds_no_run_is_refused(tmp_path: Path, moments: Moments) -> None:
    for folder, reason in ((tmp_path, "No such file"), (tmp_path / "none", "No such file")):
        with pytest.raises(RunFolderError, match=rf"{folder} holds no run that can go on.*{reason}"):
            run(moments, FAIRFAL | {"output.resume": str(folder)})
    with pytest.raises(RunFolderError, match=r"output\.resume = 'run1' is relative"):
        run(moments, FAIRFAL | {"output.resume": "run1"})
    with pytest.raises(ConfigError, match=r"output\.dir = .* and output\.resume = .* are two folders"):
        run(moments, FAIRFAL | {"output.resume": str(tmp_path), "output.dir": str(tmp_path / "other")})
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_is_going_on_is_not_resumed(references: Callable[..., Reference]) -> None:
    reference = references(FAIRFAL)
    image = reference.killed(60)
    going_on = RunFolder.reopen(str(image), "fairfal", "first")
    with pytest.raises(RunFolderError, match=r"output\.resume: another run is writing"):
        reference.resumed(image)
    going_on.release()


# --- the books


def test_the_summary_tells_what_a_run_was_made_with_and_its_sessions(
    references: Callable[..., Reference],
) -> None:
    reference = references(FAIRFAL)
    image = reference.resumed(reference.killed(reference.count - 40))
    told = summary(image)
    provenance = told["provenance"]
    assert provenance["packages"].keys() == {"flwr", "ray", "torch", "numpy"}
    assert provenance["version"] == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert provenance["commit"] == read_commit(ROOT)
    assert {session["sources"] for session in provenance["sessions"]} == {provenance["sources"]}
    assert [session["commit"] for session in provenance["sessions"]] == 2 * [provenance["commit"]]
    assert provenance["seeds"] == {"run": 1, "data": 1}
    assert provenance["devices"] == {"server": "cpu", "clients": ["cpu"]}
    assert len(provenance["sessions"]) == 2
    assert told["seconds"] == pytest.approx(sum(each["seconds"] for each in provenance["sessions"]), abs=0.11)
    assert len(summary(reference.folder)["provenance"]["sessions"]) == 1
    sent = summary(reference.folder)["provenance"]["array_bytes"]
    size = sum(
        t.numel() * t.element_size() for t in torch.load(image / "final.pt", weights_only=True).values()
    )
    # Two label rounds of two rounds, and one query in two halves; replies to the four trainings alone.
    assert sent.keys() == {"site-00", "site-01"}
    for told in sent.values():
        assert told == {
            "sent": pytest.approx(6 * size, rel=0.01),
            "received": pytest.approx(4 * size, rel=0.01),
        }
