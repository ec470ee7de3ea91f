"""From the run config to the strategy and the clock that it describes, for both apps."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from datasets.randomness import generator
from federation.config.clock import ClockConfig, parameters
from federation.config.run_config import RunConfig
from fedraw.clock import Clock, VirtualClock, WallClock
from fedraw.delays import (
    DELAY_MODELS,
    Availability,
    DelayModel,
    FromList,
    build_availability,
    build_delays,
)
from fedraw.errors import SettingError
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


def check_rare_labels(config: RunConfig, rare_labels: Collection[int]) -> None:
    """Raise SettingError where sites with rare labels are to be slow, and the data has no rare labels.

    A label round may still slow nobody, while no site knows of a rare label that it holds.
    """
    clock = config.clock
    if clock.virtual and "rare_sites" in parameters(DELAY_MODELS[clock.delays]) and not rare_labels:
        raise SettingError(
            f"clock.delays = {clock.delays!r} slows clients with rare labels, and there are none: take "
            "another model, or data.partition = 'rare-holders'"
        )


def check_files(config: RunConfig) -> None:
    """Read the files that the clock is to use, so that their faults show before any client works.

    Raises
    ------
    DelayError
        A file cannot be used.
    """
    clock = config.clock
    _read_availability(clock)
    if "file" in clock.delay_settings:
        build_delays(clock.delays, **clock.delay_settings)


def _read_availability(clock: ClockConfig) -> Availability:
    return build_availability(clock.availability, **clock.availability_settings)


def read_delays(config: RunConfig, sites: TrainingSites, rare_sites: Collection[str]) -> DelayModel:
    """Return how long jobs take in virtual time.

    Raises
    ------
    DelayError
        The file cannot be used, or lacks a site.
    """
    clock = config.clock
    known = {
        "epochs": config.train.local_epochs,
        "examples": sites.examples,
        "speeds": {site: _speed(config, site) for site in sites.names.values()},
        "rare_sites": rare_sites,
    }
    taken = parameters(DELAY_MODELS[clock.delays])
    own = {name: value for name, value in known.items() if name in taken}
    model = build_delays(clock.delays, **clock.delay_settings, **own)
    if isinstance(model, FromList):
        for site in sites.names.values():
            model.of(site)
    return model


def _speed(config: RunConfig, site: str) -> float:
    return math.exp(config.clock.speed_sigma * generator(config.seed, "speed", site).standard_normal())


def training_clock(config: RunConfig, sites: TrainingSites, rare_sites: Collection[str], seed: int) -> Clock:
    """Return the clock of an asynchronous training."""
    if not config.clock.virtual:
        return WallClock()
    return VirtualClock(read_delays(config, sites, rare_sites), _read_availability(config.clock), seed)


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
        Asynchronous: takes the event log; rounds are logged by ``TimedGrid``.
    """
    strategy, options, clients = STRATEGIES[config.strategy.name], config.strategy.options, len(sites.names)
    if issubclass(strategy, SteadyRounds):
        known: RoundSettings = {"seed": seed, "sites": sites.names, "fraction_evaluate": fraction_evaluate}
        return strategy.configured(options, known, clients=clients)
    rare_sites = sites.holding(rare_labels)
    settings: AsynchronousSettings = {
        "seed": seed,
        "sites": sites.names,
        "fraction_evaluate": fraction_evaluate,
        "label_coverage": sites.coverage,
        "clock": training_clock(config, sites, rare_sites, seed),
        "dispatch": config.clock.dispatch,
        "job_timeout": config.clock.job_timeout or None,
        "min_available_nodes": 1,
        "node_timeout": config.nodes.timeout,
        "evaluate_every": evaluate_every,
        "rare_sites": rare_sites,
        "events": events,
        "timing_only": config.clock.timing_only,
    }
    return strategy.configured(options, settings, clients=clients)
