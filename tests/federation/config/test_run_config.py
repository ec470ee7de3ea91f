"""The run config: one clear error for every wrong key or value."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets.partitions.long_tail import PROFILES
from datasets.partitions.partition import PARTITIONS
from datasets.registry import DATASETS
from fairfal_app.config import FairFALConfig
from fairfal_app.query.registry import QUERY_STRATEGIES
from federation.config import run_config
from federation.config.faults import choices_of
from federation.config.flat import fields_of, flatten, unflatten
from federation.config.options import options_of
from federation.config.run_config import RunConfig, default_run_config, known_keys, with_defaults
from federation.errors import ConfigError
from fedraw.delays import AVAILABILITIES, DELAY_MODELS
from fedraw.registry import STRATEGIES
from fedraw.strategies.asynchronous import AsynchronousStrategy
from learning.models import MODELS

ROOT = Path(__file__).parents[3]
PRESETS = sorted((ROOT / "conf").rglob("*.toml"))


def parse_run_config(flat: dict[str, Any]) -> FairFALConfig:
    return run_config.parse_run_config(flat, FairFALConfig)


def test_defaults_are_valid_and_name_every_key() -> None:
    defaults = default_run_config()
    assert set(defaults) == set(known_keys(FairFALConfig))
    assert parse_run_config(defaults).flat() == defaults


def test_every_key_has_a_comment() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    section = text.split("[tool.flwr.app.config]")[1].split("# Habits")[0]
    assert not [line for line in section.splitlines() if "=" in line and "#" not in line]


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_presets_are_valid(path: Path) -> None:
    overrides = flatten(tomllib.loads(path.read_text()))
    assert set(overrides) <= set(known_keys(FairFALConfig))
    parse_run_config(default_run_config() | overrides)


def test_digits_preset_is_the_default() -> None:
    overrides = flatten(tomllib.loads((ROOT / "conf/fairfal-digits.toml").read_text()))
    assert default_run_config() | overrides == default_run_config()


def test_the_papers_protocol() -> None:
    overrides = flatten(tomllib.loads((ROOT / "conf/fairfal-fmnist.toml").read_text()))
    config = parse_run_config(default_run_config() | overrides)
    assert (config.data.clients, config.data.alpha, config.data.imbalance) == (10, 0.1, 20.0)
    assert (config.train.rounds, config.train.local_epochs, config.query.label_rounds) == (100, 5, 9)


@pytest.mark.parametrize(
    ("key", "names"),
    [
        ("data.name", DATASETS),
        ("data.partition", PARTITIONS),
        ("data.long-tail", PROFILES),
        ("model.name", MODELS),
        ("strategy.name", STRATEGIES),
        ("clock.delays", DELAY_MODELS),
        ("clock.availability", AVAILABILITIES),
        ("query.name", QUERY_STRATEGIES),
    ],
)
def test_names_in_the_config_are_the_names_in_the_tables(key: str, names: Any) -> None:
    assert choices_of(dict(fields_of(FairFALConfig))[key]) == tuple(names)


@pytest.mark.parametrize(("table", "registry"), [("strategy", STRATEGIES), ("query", QUERY_STRATEGIES)])
def test_the_defaults_are_those_of_the_options(table: str, registry: Any) -> None:
    defaults = default_run_config()
    for name, option in options_of(registry).items():
        default = defaults[f"{table}.{name.replace('_', '-')}"]
        assert default == option.default, name
        assert type(default) is option.kind, name


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_has_its_options_out_of_the_config(name: str) -> None:
    strategy = parse_run_config(default_run_config() | {"strategy.name": name}).strategy
    assert strategy.options == STRATEGIES[name].Options()
    assert strategy.asynchronous == issubclass(STRATEGIES[name], AsynchronousStrategy)
    if strategy.asynchronous:
        assert strategy.updates_per_version == (4 if STRATEGIES[name].buffered else 1)


@pytest.mark.parametrize("name", QUERY_STRATEGIES)
def test_every_query_strategy_has_its_options_out_of_the_config(name: str) -> None:
    query = parse_run_config(default_run_config() | {"query.name": name}).query
    assert query.options == QUERY_STRATEGIES[name].Options()
    assert query.chosen_model == QUERY_STRATEGIES[name].default_model


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
        ({"data.alpha": -1.0}, ["data.alpha = -1.0", "at least 0.01", "because", "'shards'"]),
        ({"data.alpha": 1e-8}, ["data.alpha = 1e-08", "at least 0.01"]),
        ({"data.alpha": 1e7}, ["data.alpha = 10000000.0", "at most 1000000", "'iid'"]),
        ({"data.imbalance": 0.5}, ["data.imbalance = 0.5", "at least 1"]),
        ({"data.clients": 0}, ["data.clients = 0", "at least 1"]),
        (
            {"query.name": "fairfall"},
            ["query.name = 'fairfall'", "one of fairfal, random", "did you mean 'fairfal'?"],
        ),
        ({"query.kappa": 0.5}, ["query.kappa = 0.5", "at least 1"]),
        ({"query.kappa": 1e308}, ["query.kappa = 1e+308", "at most 1000000, because"]),
        ({"query.model": "locl"}, ["query.model = 'locl'", "default, adaptive", "did you mean 'local'?"]),
        ({"train.local-only-schedule": "step"}, ["one of epochs, steps", "did you mean 'steps'?"]),
        ({"query.label-ratio": 1.5}, ["query.label-ratio = 1.5", "at most 1"]),
        ({"query.last-label-ratio": 0.05}, ["query.last-label-ratio = 0.05", "query.label-ratio = 0.1"]),
        ({"strategy.participation": 0.0}, ["strategy.participation = 0.0", "more than 0"]),
        ({"query": "random"}, ["query"]),
        ({"strategy.name": "fedbuf"}, ["one of fedavg, fedprox", "aced", "did you mean 'fedbuff'?"]),
        (
            {"strategy.name": "fedbuff", "strategy.buffer-size": 6},
            ["strategy.buffer-size = 6", "data.clients = 5"],
        ),
        ({"strategy.concurrency": 0}, ["strategy.concurrency = 0", "at least 1"]),
        ({"strategy.rarity-weight": -1.0}, ["strategy.rarity-weight = -1.0", "at least 0"]),
        ({"strategy.keep": "oldest"}, ["strategy.keep = 'oldest'", "newest, freshest, mean, off"]),
        (
            {"strategy.name": "fedasync", "strategy.server-lr": 0.5},
            ["strategy.server-lr = 0.5", "fedasync, whose step is mixing"],
        ),
        ({"clock.delays": "log-normal"}, ["clock.delays = 'log-normal'", "did you mean 'lognormal'?"]),
        ({"clock.delays": "from-list"}, ["clock.delays-file", "absolute path"]),
        (
            {"clock.availability": "trace", "clock.availability-file": "on.csv"},
            ["clock.availability-file", "'on.csv'"],
        ),
        ({"clock.timing-only": True}, ["clock.timing-only", "app = 'fedraw'"]),
        ({"clock.timing-only": True, "clock.name": "wall"}, ["clock.timing-only", "'virtual'"]),
        ({"data.rare-labels": "8;9"}, ["data.rare-labels = '8;9'", '"8,9"']),
        ({"data.partition": "rare-holders"}, ["needs data.rare-labels"]),
        (
            {"data.partition": "rare-holders", "data.rare-labels": "8, 9", "data.rare-holders": 6},
            ["data.rare-holders = 6", "data.clients = 5"],
        ),
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


def test_asynchronous_strategies_take_the_updates_of_the_rounds_unless_told_otherwise() -> None:
    def steps(name: str, **overrides: object) -> int:
        config = {"data.clients": 12, "train.rounds": 10, "strategy.name": name}
        config |= {key.replace("__", "."): value for key, value in overrides.items()}
        return parse_run_config(default_run_config() | config).steps

    assert steps("fedavg") == steps("fedavg", train__versions=7) == 10
    assert steps("fedbuff") == 30
    assert steps("ace") == 120
    assert steps("fedraw", strategy__participation=0.5) == 15
    assert steps("fedraw", train__versions=7) == 7


def test_a_training_does_not_look_at_the_tables_of_other_apps() -> None:
    flat = default_run_config() | {"query.name": "fairfall", "oracle.name": 3}
    config = run_config.parse_run_config(flat)
    assert type(config) is RunConfig
    assert set(default_run_config()) - set(config.flat()) == {
        key for key in default_run_config() if key.startswith(("query.", "oracle."))
    }
    with pytest.raises(ConfigError, match=r"querry\.name is not a key"):
        run_config.parse_run_config(default_run_config() | {"querry.name": "random"})


def test_a_run_of_an_earlier_version_gets_the_defaults_of_keys_that_it_did_not_know() -> None:
    earlier = default_run_config() | {"seed": 9}
    del earlier["train.local-only-schedule"]
    whole, added = with_defaults(earlier)
    assert added == ("train.local-only-schedule",)
    assert parse_run_config(whole).train.local_only_schedule == "epochs"
    assert whole == default_run_config() | {"seed": 9}
    assert with_defaults(whole) == (whole, ())


@pytest.mark.parametrize(
    ("now", "key", "longer"),
    [
        ({"query.last-label-ratio": 0.6}, "query.last-label-ratio", True),
        ({"query.last-label-ratio": 0.4}, "query.last-label-ratio", False),
        ({"train.rounds": 30}, "train.rounds", False),  # queries depend on the length of a training
        ({"app": "fedraw", "train.rounds": 30}, "train.rounds", True),
        ({"app": "fedraw", "train.rounds": 10}, "train.rounds", False),
        ({"app": "fedraw", "strategy.name": "fedbuff", "train.versions": 99}, "train.versions", True),
        ({"train.lr": 0.02}, "train.lr", False),
    ],
)
def test_what_makes_a_run_longer(now: dict[str, Any], key: str, longer: bool) -> None:
    others = {name: value for name, value in now.items() if name != key}
    before, after = (parse_run_config(default_run_config() | given) for given in (others, now))
    assert after.only_longer(key, before) == longer
    assert (after.length > before.length) == longer or key == "train.rounds"
    assert key in after.may_be_raised or not longer


def test_rare_labels_are_numbers_in_text() -> None:
    config = {"data.partition": "rare-holders", "data.rare-labels": "9, 3", "data.rare-holders": 2}
    assert parse_run_config(default_run_config() | config).data.rare_label_ids == (9, 3)
    assert parse_run_config(default_run_config()).data.rare_label_ids == ()


@pytest.mark.parametrize("key", known_keys(FairFALConfig))
def test_no_key_takes_anything_that_comes(key: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"run config: {re.escape(key)} = \['x'\] is not allowed: it must be"
    ):
        parse_run_config(default_run_config() | {key: ["x"]})


texts = st.text("abc-", min_size=1, max_size=3)


@given(st.dictionaries(texts, st.integers() | st.dictionaries(texts, st.integers(), min_size=1)))
def test_nested_tables_come_back_from_dotted_keys(nested: dict[str, Any]) -> None:
    flat = flatten(nested)
    assert unflatten(flat) == nested
    assert all(not isinstance(value, dict) for value in flat.values())
