"""What ``rarefl list`` tells of the registries, the presets and the runs."""

import json
import os
import time
from pathlib import Path

import pytest
from rich.table import Table
from typer.testing import CliRunner

from datasets.registry import DATASETS
from fairfal_app.query.registry import QUERY_STRATEGIES
from federation.errors import ConfigError
from federation.runs.folders import locked
from fedraw.registry import STRATEGIES
from learning.models import MODELS
from rarefl import listing
from rarefl.cli import app
from rarefl.settings import PRESETS

REGISTRIES = {"strategies": STRATEGIES, "queries": QUERY_STRATEGIES, "data": DATASETS, "models": MODELS}


def columns(table: Table) -> dict[str, list[str]]:
    return {str(column.header): [str(cell) for cell in column.cells] for column in table.columns}


@pytest.mark.parametrize("topic", REGISTRIES)
def test_a_topic_has_a_line_for_each_name_of_its_registry(topic: str) -> None:
    found = columns(listing.list_topic(topic))
    assert next(iter(found.values())) == list(REGISTRIES[topic])
    for column in found.values():
        assert all(column)


@pytest.mark.parametrize("topic", ["strategies", "queries", "data", "models", "presets"])
def test_each_entry_is_one_line_where_a_program_reads_it(topic: str) -> None:
    result = CliRunner().invoke(app, ["list", topic])
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) == 1 + len(listing.TOPICS[topic][0]())


def test_a_strategy_tells_how_it_works_and_its_paper() -> None:
    found = columns(listing.list_topic("strategies"))
    rows = dict(zip(found["strategy.name"], zip(found["works"], found["paper"], strict=True), strict=True))
    assert rows["fedavg"] == ("in rounds", "arXiv 1602.05629")
    assert rows["fedraw"] == ("without rounds", "arXiv 2609.07192")


def test_presets_tell_what_they_are() -> None:
    found = columns(listing.list_topic("presets"))
    assert found["preset"] == sorted(
        path.relative_to(PRESETS).with_suffix("").as_posix() for path in PRESETS.rglob("*.toml")
    )
    place = found["preset"].index("fedraw-digits")
    assert [found[key][place] for key in ("app", "data.name", "data.clients")] == ["fedraw", "digits", "12"]
    assert all(found["what"])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "# One thing (arXiv 2603.10341) at 0.5 and\n# more. Another.\nseed = 1\n",
            "One thing (arXiv 2603.10341) at 0.5 and more",
        ),
        ("# Only this.\n", "Only this"),
        ("seed = 1\n# later\n", ""),
    ],
)
def test_the_first_sentence_of_a_preset(text: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(text)
    assert listing.first_sentence(tmp_path / "a.toml") == sentence


def test_topics_tell_how_many_entries_they_have(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(listing, "DEFAULT_PARENT", str(tmp_path))
    make_run(tmp_path / "a", "finished")
    found = columns(listing.list_topics())
    counts = dict(zip(found["topic"], map(int, found["entries"]), strict=True))
    assert counts == {
        **{topic: len(registry) for topic, registry in REGISTRIES.items()},
        "presets": len(list(PRESETS.rglob("*.toml"))),
        "runs": 1,
    }


def make_run(folder: Path, status: str, age: float = 0.0, accuracies: tuple[float, ...] = ()) -> None:
    folder.mkdir(parents=True)
    (folder / "summary.json").write_text(json.dumps({"status": status, "label": f"label-{folder.name}"}))
    (folder / "config.toml").write_text("seed = 7\n")
    if accuracies:
        (folder / "rounds.csv").write_text("round,accuracy\n" + "".join(f"1,{each}\n" for each in accuracies))
    then = time.time() - age
    os.utime(folder / "summary.json", (then, then))


def test_runs_tell_how_they_stand_the_newest_first(tmp_path: Path) -> None:
    make_run(tmp_path / "old", "finished", 90_000, (0.2, 0.81234, 0.5))
    make_run(tmp_path / "sweep" / "new", "failed", 5)
    make_run(tmp_path / "killed", "running", 7_300, (0.3,))
    (tmp_path / "killed" / "checkpoint").mkdir()
    (tmp_path / "killed" / "checkpoint" / "run.json").write_text("{}")
    make_run(tmp_path / "broken", "running", 130)
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "summary.json").write_text("{")
    os.utime(tmp_path / "half" / "summary.json", (0, 0))
    make_run(tmp_path / "alive", "running", 60, (0.4,))
    lock = locked("output.dir", tmp_path / "alive")
    try:
        found = columns(listing.list_topic("runs", tmp_path))
    finally:
        lock.release()
    assert found["run"] == ["sweep/new", "alive", "broken", "killed", "old", "half"]
    assert found["status"] == ["failed", "running", "lost", "stopped", "finished", "unreadable"]
    assert found["best accuracy"] == ["-", "0.400", "-", "0.300", "0.812", "-"]
    assert found["age"][1:5] == ["1 min", "2 min", "2 h", "1 d"]
    assert found["seed"][:5] == ["7"] * 5
    assert found["label"][0] == "label-new"


def test_no_runs_are_no_error_but_a_wrong_folder_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "DEFAULT_PARENT", str(tmp_path / "none"))
    assert columns(listing.list_topic("runs"))["run"] == []
    with pytest.raises(ConfigError, match="there is no folder"):
        listing.list_topic("runs", tmp_path / "none")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["strategy"], "there is no topic 'strategy'; did you mean 'strategies'?"),
        (["xyz"], "there are strategies, queries, data, models, presets, runs"),
        (["data", "folder"], "takes no folder"),
    ],
)
def test_a_wrong_topic_is_named(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["list", *arguments])
    assert result.exit_code == 2
    assert said in result.stderr
