"""From the run config to the strategy and the clock: whatever is registered can be had by its name alone."""

import math
from pathlib import Path
from typing import Any

import pytest

from federation.config.run_config import RunConfig, default_run_config, parse_run_config
from fedraw.clock import VirtualClock, WallClock
from fedraw.delays import AVAILABILITIES, DELAY_MODELS, RareSlow
from fedraw.errors import DelayError, SettingError
from fedraw.registry import STRATEGIES
from fedraw.strategies.asynchronous import AsynchronousStrategy
from fedraw_app.options import (
    TrainingSites,
    check_files,
    check_rare_labels,
    read_delays,
    training_clock,
    training_strategy,
)

SITES = TrainingSites(
    names={11: "a", 12: "b", 13: "c", 14: "d", 15: "e"},
    examples={"a": 10, "b": 20, "c": 30, "d": 40, "e": 50},
    coverage={"a": [1, 1, 0], "b": [1, 1, 0], "c": [1, 0, 0], "d": [1, 1, 0], "e": [0, 1, 1]},
)


def config(**overrides: Any) -> RunConfig:
    given = {key.replace("__", ".").replace("_", "-"): value for key, value in overrides.items()}
    return parse_run_config(default_run_config() | given)


def strategy(**overrides: Any) -> Any:
    return training_strategy(config(**overrides), SITES, rare_labels=(2,), seed=3)


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_is_made_out_of_the_run_config(name: str) -> None:
    made = strategy(strategy__name=name)
    assert type(made) is STRATEGIES[name]
    assert (made.seed, made.sites, made.fraction_evaluate) == (3, SITES.names, 0.0)
    if isinstance(made, AsynchronousStrategy):
        assert isinstance(made.clock, VirtualClock)
        assert (made.concurrency, made.rare_sites, made.node_timeout) == (10, {"e"}, 60.0)
        assert made.buffer_size == (4 if made.buffered else 1)
        assert made.job_timeout is None


@pytest.mark.parametrize(
    ("overrides", "attributes"),
    [
        ({"name": "fedavg", "participation": 0.5}, {"participation": 0.5}),
        ({"name": "fedprox", "proximal_mu": 0.3}, {"proximal_mu": 0.3}),
        ({"name": "fedadam"}, {"eta": 0.01}),
        ({"name": "fedyogi", "server_lr": 0.2}, {"eta": 0.2}),
        ({"name": "fedasync", "mixing": 0.9}, {"mixing": 0.9, "server_lr": 1.0}),
        ({"name": "ace"}, {"server_lr": 0.2, "max_staleness": None}),
        ({"name": "aced", "server_lr": 0.7}, {"server_lr": 0.7, "max_staleness": 10}),
        ({"name": "aced", "max_staleness": 3}, {"server_lr": 0.2, "max_staleness": 3}),
        ({"name": "fedbuff", "buffer_size": 2, "weigh_by": "examples"}, {"buffer_size": 2, "server_lr": 1.0}),
        (
            {"name": "fedbuff", "normalise": "buffer", "concurrency": 2},
            {"normalise": "buffer", "concurrency": 2},
        ),
        (
            {"name": "fedraw", "keep": "mean", "rarity": "mean", "rarity_weight": 2.0},
            {"keep": "mean", "rarity": "mean", "rarity_weight": 2.0, "label_coverage": SITES.coverage},
        ),
        ({"name": "fedraw", "label_source": "updates"}, {"label_source": "updates", "label_coverage": None}),
    ],
)
def test_options_reach_the_strategy(overrides: dict[str, Any], attributes: dict[str, Any]) -> None:
    made = strategy(**{f"strategy__{key}": value for key, value in overrides.items()})
    assert {name: getattr(made, name) for name in attributes} == attributes


@pytest.mark.parametrize(
    ("overrides", "factor"),
    [
        ({}, 0.5),
        ({"staleness": "polynomial", "staleness_exponent": 2.0}, 4**-2.0),
        ({"staleness": "hinge", "staleness_knee": 1.0, "staleness_slope": 3.0}, 1 / 7),
        ({"staleness": "constant"}, 1.0),
    ],
)
def test_the_staleness_function(overrides: dict[str, Any], factor: float) -> None:
    made = strategy(
        strategy__name="fedraw", **{f"strategy__{key}": value for key, value in overrides.items()}
    )
    assert made.staleness(3) == pytest.approx(factor)


def test_a_clock_of_real_time() -> None:
    assert isinstance(strategy(strategy__name="fedraw", clock__name="wall").clock, WallClock)
    assert isinstance(training_clock(config(clock__name="wall"), SITES, (), 1), WallClock)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "delays.csv").write_text("site,seconds\n" + "".join(f"{site},2\n" for site in "abcde"))
    (tmp_path / "on.csv").write_text("site,on,off\na,0,5\n")
    return {
        "clock__delays_file": str(tmp_path / "delays.csv"),
        "clock__availability_file": str(tmp_path / "on.csv"),
    }


@pytest.mark.parametrize("name", DELAY_MODELS)
def test_every_delay_model_is_made_out_of_the_run_config(name: str, files: dict[str, str]) -> None:
    model = read_delays(config(clock__delays=name, **files), SITES, rare_sites={"e"})
    assert type(model) is DELAY_MODELS[name]


def test_the_settings_of_delays_reach_them() -> None:
    chosen = config(
        clock__delays="rare-slow",
        clock__sigma=0.25,
        clock__slow_factor=8.0,
        clock__speed_sigma=0.0,
        clock__seconds_per_example=0.5,
        clock__communication=7.0,
        train__local_epochs=3,
    )
    model = read_delays(chosen, SITES, rare_sites={"e"})
    assert isinstance(model, RareSlow)
    assert (model.sigma, model.seconds_per_example, model.communication, model.epochs) == (0.25, 0.5, 7.0, 3)
    assert (model.examples, model.speeds) == (SITES.examples, dict.fromkeys("abcd", 1.0) | {"e": 1 / 8})
    assert read_delays(config(clock__delays="pareto", clock__pareto_shape=3.5), SITES, ()).shape == 3.5  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", AVAILABILITIES)
def test_every_availability_is_made_out_of_the_run_config(name: str, files: dict[str, str]) -> None:
    clock = training_clock(config(clock__availability=name, **files), SITES, (), 1)
    assert isinstance(clock, VirtualClock)
    assert type(clock.availability) is AVAILABILITIES[name]


@pytest.mark.parametrize(
    "overrides",
    [
        {"clock__delays": "from-list", "clock__delays_file": "/nowhere/delays.csv"},
        {"clock__availability": "trace", "clock__availability_file": "/nowhere/on.csv"},
    ],
)
def test_files_are_read_before_anybody_works(overrides: dict[str, Any]) -> None:
    with pytest.raises(DelayError, match=r"/nowhere/.* cannot be read"):
        check_files(config(**overrides))
    check_files(config())


def test_a_list_without_a_site_is_refused(files: dict[str, str]) -> None:
    more = TrainingSites(SITES.names | {16: "f"}, SITES.examples, SITES.coverage)
    with pytest.raises(DelayError, match="no row of site 'f'"):
        read_delays(config(clock__delays="from-list", **files), more, ())


def test_slow_sites_need_a_rare_label() -> None:
    with pytest.raises(SettingError, match=r"clock\.delays = 'rare-slow' slows clients with rare labels"):
        check_rare_labels(config(clock__delays="rare-slow"), ())
    check_rare_labels(config(clock__delays="rare-slow"), (3,))


def test_where_nobody_holds_a_rare_label_yet_nobody_is_slow() -> None:
    model = read_delays(config(clock__delays="rare-slow"), SITES, ())
    assert model.speeds == read_delays(config(clock__delays="lognormal"), SITES, ()).speeds  # type: ignore[attr-defined]


def test_speeds_are_drawn_once_for_each_site() -> None:
    chosen = config(clock__speed_sigma=0.5)
    first, again = (read_delays(chosen, SITES, ()).speeds for _ in range(2))  # type: ignore[attr-defined]
    assert first == again
    assert len(set(first.values())) == 5
    assert all(math.isfinite(speed) and speed > 0 for speed in first.values())
