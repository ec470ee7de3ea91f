from pathlib import Path

import pytest

from federation.errors import ConfigError
from rarefl.settings import read_words
from rarefl.sweep_plan import PlannedRun, parse_seeds
from rarefl.sweep_plan import plan_runs as plan_given


@pytest.fixture
def preset(tmp_path: Path) -> Path:
    path = tmp_path / "preset.toml"
    path.write_text("seed = 5\n[data]\nalpha = 1\nclients = 3\n")
    return path


def plan_runs(preset: Path, settings: list[str], seeds: str | None, out: Path) -> list[PlannedRun]:
    return plan_given(read_words([str(preset), *settings]), seeds, out)


@pytest.mark.parametrize(
    ("text", "seeds"),
    [
        ("1-3", [1, 2, 3]),
        ("1,4,7", [1, 4, 7]),
        ("7", [7]),
        ("0-1, 5", [0, 1, 5]),
    ],
)
def test_seeds(text: str, seeds: list[int]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "1;2", "1.5", "3-1", "1,,2", "1-3,2"])
def test_bad_seeds_are_named(text: str) -> None:
    with pytest.raises(ConfigError, match="--seeds"):
        parse_seeds(text)


def test_the_grid_is_every_combination_seed_by_seed(preset: Path, tmp_path: Path) -> None:
    runs = plan_runs(preset, ["query.name=random,fairfal", "data.alpha=0.1,100"], "1-2", tmp_path / "out")

    assert [run.name for run in runs] == [
        f"data.alpha={alpha},query.name={name},seed={seed}"
        for seed in (1, 2)
        for alpha in ("0.1", "100")
        for name in ("random", "fairfal")
    ]
    run = runs[2]
    assert run.varied == {"data.alpha": 100.0, "query.name": "random"}
    assert (run.config.data.alpha, run.config.query.name, run.config.seed) == (100.0, "random", 1)
    assert run.config.output.dir == str(run.folder) == str(tmp_path / "out" / run.name)


def test_what_is_written_is_no_part_of_a_runs_name(preset: Path, tmp_path: Path) -> None:
    settings = ["output.tensorboard=true", "query.name=random,fairfal"]
    runs = plan_runs(preset, settings, "1", tmp_path)
    assert [run.name for run in runs] == ["query.name=random,seed=1", "query.name=fairfal,seed=1"]
    assert all(run.config.output.tensorboard for run in runs)
    with pytest.raises(ConfigError, match="share the folder name seed=1"):
        plan_runs(preset, ["output.quiet=true,false"], "1", tmp_path)


def test_a_relative_folder_becomes_absolute(
    preset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert plan_runs(preset, [], None, Path("out"))[0].config.output.dir == str(tmp_path / "out" / "seed=5")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["data.alhpa=1"], r"data\.alhpa is not a key .* did you mean data\.alpha"),
        (["data.alpha=1,-1"], r"data\.alpha = -1\.0 is not allowed"),
        (["data.clients=two"], r"data\.clients = 'two' is not allowed.* whole number"),
        (["query.name=random,fairfall"], r"'fairfall' is not allowed.*did you mean 'fairfal'"),
        (["seed=1,2"], r"cannot vary seed; use --seeds"),
        (["output.dir=/tmp/x"], r"cannot vary output\.dir"),
        (["data.root=a b,a-b"], "share the folder name"),
    ],
)
def test_any_wrong_run_spoils_the_plan(preset: Path, tmp_path: Path, settings: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        plan_runs(preset, settings, None, tmp_path)
