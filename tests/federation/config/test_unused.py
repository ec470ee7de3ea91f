"""Keys that were set and do nothing are named with the reason; a run that means what it says gets no word."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from fairfal_app.config import FairFALConfig
from federation.config.flat import flatten
from federation.config.run_config import default_run_config, parse_run_config
from federation.config.unused import unused_keys

ROOT = Path(__file__).parents[3]


def unused(**overrides: Any) -> list[str]:
    given = {key.replace("__", ".").replace("_", "-"): value for key, value in overrides.items()}
    return unused_keys(parse_run_config(default_run_config() | given, FairFALConfig))


@pytest.mark.parametrize("path", sorted((ROOT / "conf").rglob("*.toml")), ids=lambda path: path.stem)
def test_presets_set_nothing_in_vain(path: Path) -> None:
    overrides = flatten(tomllib.loads(path.read_text()))
    assert unused_keys(parse_run_config(default_run_config() | overrides, FairFALConfig)) == []


def test_an_option_of_another_strategy() -> None:
    expected = (
        "strategy.rarity-weight = 4.0 has no effect: it is an option of fedraw, and strategy.name = 'fedavg'"
    )
    assert unused(strategy__rarity_weight=4.0) == [expected]
    assert unused(strategy__rarity_weight=4.0, strategy__name="fedraw") == []
    assert unused(strategy__rarity_weight=6.0) == []  # the default


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (
            {"strategy__name": "fedprox", "strategy__server_lr": 0.5},
            ["strategy.server-lr = 0.5", "an option of fedadam", "strategy.name = 'fedprox'"],
        ),
        (
            {"strategy__buffer_size": 2, "strategy__name": "ace"},
            ["strategy.buffer-size = 2", "an option of", "fedbuff", "strategy.name = 'ace'"],
        ),
        (
            {"query__name": "random", "query__kappa": 2.0},
            ["query.kappa = 2.0", "an option of fairfal, and query.name = 'random'"],
        ),
        (
            {"query__name": "random", "query__model": "local"},
            ["query.model = 'local'", "looks at no predictions"],
        ),
        ({"query__name": "margin", "query__delta": 0.5}, ["query.delta = 0.5", "is the global one"]),
        ({"app": "fedraw", "query__kappa": 2.0}, ["query.kappa = 2.0", "app = 'fedraw' asks for no labels"]),
        ({"train__versions": 9}, ["train.versions = 9", "strategy.name = 'fedavg' works in rounds"]),
        ({"clock__dispatch": "random"}, ["clock.dispatch = 'random'", "works in rounds"]),
        ({"clock__sigma": 0.1}, ["clock.sigma = 0.1", "clock.delays = 'constant' does not use it"]),
        (
            {"strategy__name": "fedbuff", "clock__ask_again": 3.0},
            ["clock.ask-again = 3.0", "clock.availability = 'always' does not use it"],
        ),
        (
            {"clock__name": "wall", "clock__communication": 3.0},
            ["clock.communication = 3.0", "computed time, and clock.name = 'wall'"],
        ),
    ],
)
def test_what_has_no_effect_is_named_with_the_reason(overrides: dict[str, Any], parts: list[str]) -> None:
    (sentence,) = unused(**overrides)
    for part in parts:
        assert part in sentence


@pytest.mark.parametrize(
    "overrides",
    [
        {"strategy__name": "fedadam", "strategy__server_lr": 0.1},
        {"strategy__participation": 0.5},
        {"strategy__name": "fedbuff", "strategy__participation": 0.5},  # decides the number of versions
        {"strategy__name": "fedbuff", "train__versions": 9, "clock__dispatch": "random"},
        {"clock__delays": "rare-slow", "clock__sigma": 0.1, "clock__slow_factor": 2.0},
        {"clock__delays": "pareto", "clock__pareto_shape": 3.0, "clock__speed_sigma": 1.0},
        {"query__name": "entropy", "query__model": "adaptive", "query__delta": 0.5},
        {"query__model": "opposite", "query__delta": 0.5},
    ],
)
def test_what_has_an_effect_is_not_named(overrides: dict[str, Any]) -> None:
    assert unused(**overrides) == []


def test_versions_leave_rounds_and_participation_without_effect() -> None:
    sentences = unused(
        strategy__name="fedbuff", strategy__participation=0.5, train__versions=9, train__rounds=7
    )
    assert sentences == [
        f"{key} has no effect: train.versions = 9 says how long the training is"
        for key in ("train.rounds = 7", "strategy.participation = 0.5")
    ]
