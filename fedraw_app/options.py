"""From the run config to the strategy and the clock that it describes, for both apps."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from datasets.randomness import generator
from federation.config.run_config import RunConfig
from fedraw.clock import Clock, VirtualClock, WallClock
from fedraw.delays import (
    Availability,
    DelayModel,
    FromList,
    build_availability,
    build_delays,
)
from fedraw.errors import SettingError
from fedraw.options import AsynchronousOptions
from fedraw.registry import STRATEGIES, TrainingStrategy
from fedraw.rounds.synchronous import RoundSettings, SteadyRounds
from fedraw.run.events import Event
from fedraw.strategies.settings import AsynchronousSettings


@dataclass(frozen=True)
class TrainingSites:
    """What the server knows of the sites that train.

    Attributes
    ----------
    names
        Site of each node.
    examples
        Training examples of each site.
    coverage
        Label coverage of each site, (C,) zeros and ones.
    """

    names: Mapping[int, str]
    examples: Mapping[str, int]
    coverage: Mapping[str, Sequence[int]]

    def holding(self, labels: Collection[int]) -> frozenset[str]:
        """Return the sites that hold at least one of the labels."""
        return frozenset(site for site, bits in self.coverage.items() if any(bits[label] for label in labels))


def check_files(config: RunConfig) -> None:
    """Read the files that the clock is to use, so that their faults show before any client works.

    Raises
    ------
    DelayError
        A file cannot be used.
    """
    _read_availability(config)
    if config.clock.delays == "from-list":
        FromList(file=config.clock.delays_file)


def _read_availability(config: RunConfig) -> Availability:
    clock = config.clock
    settings: dict[str, Any] = {}
    if clock.availability == "bernoulli":
        settings = {"probability": clock.probability, "retry_after": clock.ask_again}
    elif clock.availability == "trace":
        settings = {"file": clock.availability_file}
    return build_availability(clock.availability, **settings)


def read_delays(config: RunConfig, sites: TrainingSites, rare_sites: Collection[str]) -> DelayModel:
    """Return how long jobs take in virtual time.

    Raises
    ------
    SettingError
        Rare sites are to be slow, and no site holds a rare label.
    DelayError
        The file cannot be used, or lacks a site.
    """
    clock = config.clock
    if clock.delays == "from-list":
        listed = FromList(file=clock.delays_file)
        for site in sites.names.values():
            listed.of(site)
        return listed
    settings: dict[str, Any] = {
        "seconds_per_example": clock.seconds_per_example,
        "communication": clock.communication,
        "epochs": config.train.local_epochs,
        "examples": sites.examples,
        "speeds": {site: _speed(config, site) for site in sites.names.values()},
    }
    if clock.delays in ("lognormal", "rare-slow"):
        settings["sigma"] = clock.sigma
    if clock.delays == "pareto":
        settings["shape"] = clock.pareto_shape
    if clock.delays == "rare-slow":
        if not rare_sites:
            raise SettingError(
                "clock.delays = 'rare-slow' slows clients with rare labels, and there are none: take "
                "another model, or data.partition = 'rare-holders'"
            )
        settings |= {"rare_sites": rare_sites, "slow_factor": clock.slow_factor}
    return build_delays(clock.delays, **settings)


def _speed(config: RunConfig, site: str) -> float:
    return math.exp(config.clock.speed_sigma * generator(config.seed, "speed", site).standard_normal())


def training_clock(config: RunConfig, sites: TrainingSites, rare_sites: Collection[str], seed: int) -> Clock:
    """Return the clock of an asynchronous training."""
    if config.clock.name == "wall":
        return WallClock()
    return VirtualClock(read_delays(config, sites, rare_sites), _read_availability(config), seed)


def training_strategy(
    config: RunConfig,
    sites: TrainingSites,
    rare_labels: Collection[int],
    seed: int,
    *,
    fraction_evaluate: float = 0.0,
    evaluate_every: int = 1,
    events: Callable[[Event], None] | None = None,
) -> TrainingStrategy:
    """Return the strategy that the run config names, synchronous or asynchronous, for one training.

    Parameters
    ----------
    seed
        Seed of its draws.
    fraction_evaluate
        Share of the clients that evaluate.
    evaluate_every
        Asynchronous: versions between evaluations.
    events
        Asynchronous: takes the event log.
    """
    kind = STRATEGIES[config.strategy.name]
    options = kind.Options(
        **{each.name: getattr(config.strategy, each.name) for each in fields(kind.Options)}
    )
    clients = len(sites.names)
    if issubclass(kind, SteadyRounds):
        known: RoundSettings = {"seed": seed, "sites": sites.names, "fraction_evaluate": fraction_evaluate}
        return kind.configured(options, known, clients=clients)
    assert isinstance(options, AsynchronousOptions)
    rare_sites = sites.holding(rare_labels)
    settings: AsynchronousSettings = {
        "seed": seed,
        "sites": sites.names,
        "fraction_evaluate": fraction_evaluate,
        "clock": training_clock(config, sites, rare_sites, seed),
        "dispatch": config.clock.dispatch,
        "job_timeout": config.clock.job_timeout or None,
        "min_available_nodes": 1,
        "node_timeout": config.nodes.timeout,
        "evaluate_every": evaluate_every,
        "label_coverage": sites.coverage,
        "rare_sites": rare_sites,
        "events": events,
        "timing_only": config.clock.timing_only,
    }
    return kind.configured(options, settings, clients=clients)
