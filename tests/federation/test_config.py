"""The run config: one clear error for every wrong key or value."""

import tomllib
from pathlib import Path
from typing import get_args

import pytest

from datasets.registry import DATASETS
from federation.config import (
    DatasetName,
    QueryName,
    StrategyName,
    default_run_config,
    flatten,
    known_keys,
    parse_run_config,
)
from federation.errors import ConfigError

ROOT = Path(__file__).parents[2]
PRESETS = sorted((ROOT / "conf").glob("*.toml"))


def test_defaults_are_valid_and_name_every_key() -> None:
    defaults = default_run_config()
    assert set(defaults) == set(known_keys())
    assert parse_run_config(defaults).flat() == defaults


def test_every_key_has_a_comment() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    section = text.split("[tool.flwr.app.config]")[1].split("# Habits")[0]
    assert not [line for line in section.splitlines() if "=" in line and "#" not in line]


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_presets_are_valid(path: Path) -> None:
    overrides = flatten(tomllib.loads(path.read_text()))
    assert set(overrides) <= set(known_keys())
    parse_run_config(default_run_config() | overrides)


def test_digits_preset_is_the_default() -> None:
    overrides = flatten(tomllib.loads((ROOT / "conf/fairfal-digits.toml").read_text()))
    assert default_run_config() | overrides == default_run_config()


def test_the_papers_protocol() -> None:
    overrides = flatten(tomllib.loads((ROOT / "conf/fairfal-fmnist.toml").read_text()))
    config = parse_run_config(default_run_config() | overrides)
    assert (config.data.clients, config.data.alpha, config.data.imbalance) == (10, 0.1, 20.0)
    assert (config.train.rounds, config.train.local_epochs, config.query.label_rounds) == (100, 5, 9)


def test_names_in_the_config_are_the_names_in_the_tables() -> None:
    from fairfal_app.query.registry import QUERY_STRATEGIES
    from fedraw_app.strategies.synchronous import SYNCHRONOUS

    assert set(get_args(DatasetName)) == set(DATASETS)
    assert set(get_args(QueryName)) == set(QUERY_STRATEGIES)
    assert set(get_args(StrategyName)) == set(SYNCHRONOUS)


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ({"train.round": 3}, ["train.round is not a key", "did you mean train.rounds?"]),
        ({"querry.name": "random"}, ["querry.name is not a key", "did you mean query.name?"]),
        ({"nonsense": 1}, ["nonsense is not a key", "query.name"]),
        ({"train.rounds": "three"}, ["train.rounds = 'three'", "a whole number"]),
        ({"train.rounds": True}, ["train.rounds = True", "a whole number"]),
        ({"train.rounds": 0}, ["train.rounds = 0", "at least 1"]),
        ({"train.lr": 0.0}, ["train.lr = 0.0", "more than 0"]),
        ({"train.lr": float("nan")}, ["train.lr = nan", "a finite number"]),
        ({"train.flip": 1}, ["train.flip = 1", "true or false"]),
        ({"data.root": 5}, ["data.root = 5", "a text in quotes"]),
        ({"data.alpha": -1.0}, ["data.alpha = -1.0", "more than 0"]),
        ({"data.imbalance": 0.5}, ["data.imbalance = 0.5", "at least 1"]),
        ({"data.clients": 0}, ["data.clients = 0", "at least 1"]),
        (
            {"query.name": "fairfall"},
            ["query.name = 'fairfall'", "one of fairfal, random", "did you mean 'fairfal'?"],
        ),
        ({"query.kappa": 0.5}, ["query.kappa = 0.5", "at least 1"]),
        ({"query.label-ratio": 1.5}, ["query.label-ratio = 1.5", "at most 1"]),
        ({"query.last-label-ratio": 0.05}, ["query.last-label-ratio = 0.05", "query.label-ratio = 0.1"]),
        ({"strategy.participation": 0.0}, ["strategy.participation = 0.0", "more than 0"]),
        ({"query": "random"}, ["query"]),
    ],
)
def test_errors_name_key_value_and_what_is_allowed(override: dict[str, object], parts: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        parse_run_config(default_run_config() | override)
    for part in parts:
        assert part in str(error.value)


def test_every_fault_is_named_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        parse_run_config(default_run_config() | {"train.rounds": 0, "data.clientz": 3})
    assert "train.rounds" in str(error.value)
    assert "data.clientz" in str(error.value)


def test_missing_key_is_named() -> None:
    config = default_run_config()
    del config["train.rounds"]
    with pytest.raises(ConfigError, match=r"train\.rounds is missing"):
        parse_run_config(config)


def test_whole_numbers_are_numbers() -> None:
    assert parse_run_config(default_run_config() | {"data.alpha": 1}).data.alpha == 1.0


def test_query_model_default_follows_the_strategy() -> None:
    def chosen(name: str, model: str) -> str:
        return parse_run_config(
            default_run_config() | {"query.name": name, "query.model": model}
        ).query.chosen_model

    assert chosen("fairfal", "default") == "adaptive"
    assert chosen("entropy", "default") == "global"
    assert chosen("entropy", "local") == "local"
