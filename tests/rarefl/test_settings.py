"""What may be typed as settings, and what it comes to."""

from pathlib import Path

import pytest
import tomli_w

from federation.config.run_config import default_run_config
from federation.errors import ConfigError
from rarefl.settings import PRESETS, parse_settings, read_preset, read_words, resumed


@pytest.fixture
def preset(tmp_path: Path) -> Path:
    path = tmp_path / "preset.toml"
    path.write_text("seed = 5\n[data]\nalpha = 1\nclients = 3\n")
    return path


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


@pytest.mark.parametrize("text", ["query.name=entropy", "query.name='entropy'", 'query.name="entropy"'])
def test_quotes_are_not_needed(text: str) -> None:
    assert read_words([text]).config().query.name == "entropy"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["data.alpha"], "'data.alpha' is neither"),
        (["=1"], "'=1' is neither"),
        (["query.name:entropy=1"], "is neither"),
        (["data.alpha=1", "data.alpha=2"], "data.alpha is given twice"),
        (["data.alpha=1,1.0"], "value 1.0 twice"),
    ],
)
def test_bad_settings_are_named(settings: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_settings(settings)


def test_the_preset_wins_over_defaults_and_single_values_over_the_preset(preset: Path) -> None:
    config = read_words([str(preset), "data.clients=7"]).config()

    assert (config.seed, config.data.alpha, config.data.clients, config.data.name) == (5, 1.0, 7, "digits")


def test_without_a_preset_the_defaults_stand() -> None:
    given = read_words(["seed=3"])

    assert given.name == "defaults"
    assert given.config().flat() == default_run_config() | {"seed": 3}


def test_a_preset_may_stand_anywhere_and_be_called_by_its_name() -> None:
    given = read_words(["seed=3", "fedraw-digits"])

    assert (given.preset, given.name) == (PRESETS / "fedraw-digits.toml", "fedraw-digits")
    assert given.config().app == "fedraw"


def test_a_file_with_an_equals_sign_in_its_name_is_a_preset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "seed=4.toml").write_text("seed = 4\n")
    monkeypatch.chdir(tmp_path)

    assert read_words(["seed=4.toml", "data.clients=3"]).config().seed == 4
    assert read_words([str(tmp_path / "seed=4.toml")]).config().seed == 4


def test_more_settings_come_by_an_option(preset: Path) -> None:
    config = read_words([str(preset)], ["data.clients=4"]).config()
    assert config.data.clients == 4


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["fairfal-digits", "fedraw-digits"], "one preset, not 2"),
        (
            ["conf/fairfal-digit.toml"],
            r"fairfal-digit\.toml: No such file.*mean fairfal-digits",
        ),
        (["xyz"], "cannot read xyz: .*the presets are .*fedraw-digits"),
        (["query.name=random,entropy"], "query.name has 2 values: random, entropy; give one"),
        (["query.nmae=random"], "did you mean query.name"),
        (["query.name=entropi"], "'entropi' is not allowed.*did you mean 'entropy'"),
    ],
)
def test_what_is_wrong_is_named_with_the_nearest_name(words: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_words(words).config()


def test_a_preset_that_is_not_toml_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.toml").write_text("alpha = = 1")

    with pytest.raises(ConfigError, match=r"broken\.toml is not valid TOML"):
        read_preset(tmp_path / "broken.toml")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run's folder that holds nothing but its settings."""
    (tmp_path / "run").mkdir()
    config = read_words(["fedraw-digits", "seed=9", "output.dir=/a", "output.quiet=true"]).config()
    (tmp_path / "run" / "config.toml").write_text(tomli_w.dumps(config.resolved()))
    return tmp_path / "run"


def test_a_run_goes_on_by_its_own_settings_and_what_is_raised(folder: Path) -> None:
    config = resumed(folder, read_words(["train.rounds=90"])).config()

    assert (config.app, config.seed, config.train.rounds) == ("fedraw", 9, 90)
    assert (config.output.dir, config.output.resume, config.output.quiet) == ("", str(folder), True)


def test_a_relative_folder_is_that_of_the_command_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    assert resumed(Path("run"), read_words([])).config().output.resume == str(folder)


def test_a_key_that_is_newer_than_the_run_takes_its_default(folder: Path) -> None:
    file = folder / "config.toml"
    file.write_text(file.read_text().replace("quiet = true\n", ""))
    assert resumed(folder, read_words([])).config().output.quiet is False


def test_a_resumed_run_takes_no_preset_and_needs_a_run(folder: Path, preset: Path) -> None:
    with pytest.raises(ConfigError, match=r"leave .*preset\.toml out"):
        resumed(folder, read_words([str(preset)]))
    with pytest.raises(ConfigError, match=r"has no config\.toml.*rarefl list runs"):
        resumed(folder.parent, read_words([]))
    with pytest.raises(ConfigError, match="are two folders"):
        resumed(folder, read_words(["output.dir=/elsewhere"])).config()
