from pathlib import Path

import pytest

from federation.errors import ConfigError
from rarefl.sweep_plan import federation_config, merge, parse_seeds, parse_settings, plan_runs, read_preset


@pytest.fixture
def preset(tmp_path: Path) -> Path:
    path = tmp_path / "preset.toml"
    path.write_text("seed = 5\n[data]\nalpha = 1\nclients = 3\n")
    return path


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


def test_values_take_the_type_of_the_default() -> None:
    values = parse_settings(["data.alpha=0.1,100", "data.clients=3, 4", "train.flip=true", "data.root=2024"])

    assert values == {
        "data.root": ["2024"],
        "data.clients": [3, 4],
        "data.alpha": [0.1, 100.0],
        "train.flip": [True],
    }
    assert [type(value) for value in values["data.alpha"]] == [float, float]


def test_keys_come_in_the_order_of_the_run_config_however_they_are_given() -> None:
    assert list(parse_settings(["query.name=random", "data.alpha=1"])) == ["data.alpha", "query.name"]


def test_a_quoted_value_keeps_its_comma() -> None:
    assert parse_settings(['data.root="/a,b",/c']) == {"data.root": ["/a,b", "/c"]}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["data.alpha"], "'data.alpha' is not of the form"),
        (["=1"], "'=1' is not of the form"),
        (["data.alpha=1", "data.alpha=2"], "data.alpha twice"),
        (["data.alpha=1,1.0"], "value 1.0 twice"),
    ],
)
def test_bad_settings_are_named(settings: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_settings(settings)


def test_the_preset_wins_over_defaults_and_single_values_over_the_preset(preset: Path) -> None:
    config = merge(preset, {"data.clients": 7})

    assert (config.seed, config.data.alpha, config.data.clients, config.data.name) == (5, 1.0, 7, "digits")


def test_a_missing_preset_names_those_that_are_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml: No such file.*the presets are .*\.toml"):
        read_preset(tmp_path / "nowhere.toml")


def test_a_preset_that_is_not_toml_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.toml").write_text("alpha = = 1")

    with pytest.raises(ConfigError, match=r"broken\.toml is not valid TOML"):
        read_preset(tmp_path / "broken.toml")


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


def test_the_federation_has_a_node_per_client() -> None:
    assert federation_config("", 4) == "num-supernodes=4 client-resources-num-cpus=1"
    assert (
        federation_config("client-resources-num-cpus=2  client-resources-num-gpus=0.5 backend=ray", 4)
        == 'num-supernodes=4 client-resources-num-cpus=2 client-resources-num-gpus=0.5 backend="ray"'
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("num-supernodes=3", "follows data.clients"),
        ("client-resources-num-cpu=1", "did you mean client-resources-num-cpus"),
        ("client-resources-num-cpus=0.5", "must be a whole number from 1"),
        ("client-resources-num-cpus = 1", "not of the form key=value"),
    ],
)
def test_a_bad_federation_config_is_named(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        federation_config(text, 4)


@pytest.mark.parametrize(("address", "allowed"), [("10.0.0.1:6379", False), ("local", True), ("", True)])
def test_a_cluster_that_is_there_keeps_its_size(
    address: str, allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", address)
    assert federation_config("client-resources-num-cpus=2", 4)
    if allowed:
        assert federation_config("init-args-num-cpus=2", 4).endswith(" init-args-num-cpus=2")
    else:
        with pytest.raises(ConfigError, match="init-args-num-cpus is not allowed with RAY_ADDRESS=10"):
            federation_config("init-args-num-cpus=2", 4)
