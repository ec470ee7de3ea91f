"""The page of strategies and the options in pyproject.toml say what the registries say."""

import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from datasets.registry import DATASETS
from fairfal_app.query.registry import QUERY_STRATEGIES
from federation.config.run_config import default_run_config
from fedraw.registry import STRATEGIES
from learning.models import MODELS
from rarefl import reference
from tests.rarefl.toys import Toy, ToyQuery

ROOT = Path(__file__).parents[2]


def _copy(folder: Path) -> None:
    """Put the files that have written parts into a folder."""
    (folder / "fedraw").mkdir()
    for file in ("pyproject.toml", "fedraw/README.md"):
        shutil.copy(ROOT / file, folder / file)


def test_nothing_is_stale() -> None:
    assert sorted(map(str, reference.stale())) == [], "run `python -m rarefl.reference`"


@pytest.mark.parametrize("registry", [STRATEGIES, QUERY_STRATEGIES, DATASETS, MODELS])
def test_the_page_has_every_name(registry: Mapping[str, Any]) -> None:
    page = reference.page()
    assert [name for name in registry if f"\n| `{name}` | " not in page] == []


def test_every_row_has_a_help() -> None:
    empty = [line for line in reference.page().splitlines() if "|  |  |" in line]
    assert empty == []


def test_a_new_strategy_is_its_file_and_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(STRATEGIES, "toy", Toy)
    monkeypatch.setitem(QUERY_STRATEGIES, "toy-query", ToyQuery)
    page = reference.page()
    assert "| `toy` | Plays with updates | without rounds | arXiv 0000.00001 |" in page
    assert '| `strategy.toy-manner` | `toy` | `"calm"` | `calm`, `wild` | how it plays |' in page
    assert "| `query.toy-count` | `toy-query` | `3` | a whole number at least 1 | toys asked for |" in page

    _copy(tmp_path)
    (tmp_path / "docs").mkdir()
    stale = reference.stale(tmp_path)
    assert len(stale) == 3
    assert (
        "| `Toy` | Plays with updates. | arXiv 0000.00001 |\n\n" in stale[tmp_path / "fedraw" / "README.md"]
    )
    text = reference.settings((tmp_path / "pyproject.toml").read_text())
    assert reference.settings(text) == text
    assert max(map(len, text.split("app.config.strategy]")[1].split("Habits")[0].splitlines())) <= 130
    before, after = (
        tomllib.loads(source)["tool"]["flwr"]["app"]["config"]
        for source in ((ROOT / "pyproject.toml").read_text(), text)
    )
    assert after["strategy"] == before["strategy"] | {"toy-share": 0.25, "toy-manner": "calm"}
    assert after["query"] == before["query"] | {"toy-count": 3}
    assert {key: value for key, value in after.items() if key not in ("strategy", "query")} == {
        key: value for key, value in before.items() if key not in ("strategy", "query")
    }


def test_an_option_that_went_leaves_both_files(tmp_path: Path) -> None:
    text = (ROOT / "pyproject.toml").read_text()
    old = text.replace("\n\n[tool.flwr.app.config.clock]", "\ngone = 1  # x\n\n[tool.flwr.app.config.clock]")
    assert "gone" in tomllib.loads(old)["tool"]["flwr"]["app"]["config"]["strategy"]
    assert reference.settings(old) == text


def test_check_names_the_stale_file_and_writes_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    _copy(tmp_path)
    stale = reference.stale
    monkeypatch.setattr(reference, "stale", lambda: stale(tmp_path))
    assert reference.main(["--check"]) == 1
    assert f"{tmp_path / 'docs' / 'strategies.md'} is stale: run `python -m" in capsys.readouterr().err
    assert not (tmp_path / "docs").exists()
    assert reference.main([]) == 0
    assert (tmp_path / "docs" / "strategies.md").read_text() == reference.page()
    assert reference.main(["--check"]) == 0


def test_a_strategy_that_is_registered_can_be_named_in_a_run_config() -> None:
    program = """
from fedraw.registry import STRATEGIES
from fairfal_app.query.registry import QUERY_STRATEGIES
from tests.rarefl import toys
STRATEGIES["toy"] = toys.Toy
QUERY_STRATEGIES["toy-query"] = toys.ToyQuery
from fairfal_app.config import FairFALConfig
from fairfal_app.options import query_strategy
from federation.config.run_config import default_run_config, parse_run_config
given = {"strategy.name": "toy", "strategy.toy-share": 0.5, "strategy.toy-manner": "wild",
         "query.name": "toy-query", "query.toy-count": 9}
config = parse_run_config(default_run_config() | given, FairFALConfig)
print(config.strategy.options, config.strategy.asynchronous, query_strategy(config.query).options)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for part in ("toy_share=0.5", "toy_manner='wild'", "buffer_size=4", "True", "toy_count=9"):
        assert part in done.stdout
    assert "toy-share" not in default_run_config()
