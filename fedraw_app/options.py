"""From the run config to the strategy and the clock that it describes, for both apps."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from datasets.randomness import generator
from federation.config.run_config import RunConfig
from fedraw import build_strategy
from fedraw.clock import Clock, VirtualClock, WallClock
from fedraw.delays import (
    Availability,
    DelayModel,
    FromList,
    build_availability,
    build_delays,
)
from fedraw.errors import SettingError
from fedraw.registry import TrainingStrategy
from fedraw.run.events import Event
from fedraw.staleness import build_staleness

# Server learning rate of FedAdam and FedYogi unless one is given; that of the others is 1.
ADAPTIVE_LR = 0.01


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
    chosen = config.strategy
    settings: dict[str, Any] = {
        "seed": seed,
        "sites": sites.names,
        "buffer_keys": None,
        "fraction_evaluate": fraction_evaluate,
    }
    if not chosen.asynchronous:
        return build_strategy(
            chosen.name,
            participation=chosen.participation,
            proximal_mu=chosen.proximal_mu,
            server_lr=chosen.server_lr or ADAPTIVE_LR,
            **settings,
        )
    rare_sites = sites.holding(rare_labels)
    settings |= {
        "concurrency": chosen.concurrency,
        "server_lr": chosen.server_lr or _server_lr(config, sites),
        "weigh_by": chosen.weigh_by,
        "normalise": chosen.normalise,
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
    return build_strategy(chosen.name, **settings, **_own_settings(config, sites))


def _server_lr(config: RunConfig, sites: TrainingSites) -> float:
    """Return the server's learning rate that an asynchronous strategy has by default.

    Every arrival at ACE makes a step with the updates of all clients, so an update takes part in as many
    steps as there are clients; its share in each is small enough that they are one step together.
    """
    return 1 / len(sites.names) if config.strategy.name in ("ace", "aced") else 1.0


def _own_settings(config: RunConfig, sites: TrainingSites) -> dict[str, Any]:
    """Return the settings that some asynchronous strategies have and others have not."""
    chosen = config.strategy
    settings: dict[str, Any] = {}
    if chosen.buffered:
        settings["buffer_size"] = chosen.buffer_size
    if chosen.staleness != "default":
        settings["staleness"] = build_staleness(
            chosen.staleness,
            **{
                "constant": {},
                "polynomial": {"exponent": chosen.staleness_exponent},
                "hinge": {"slope": chosen.staleness_slope, "knee": chosen.staleness_knee},
            }[chosen.staleness],
        )
    if chosen.max_staleness >= 0:
        settings["max_staleness"] = chosen.max_staleness
    if chosen.name == "fedasync":
        settings["mixing"] = chosen.mixing
    if chosen.name == "fedraw":
        settings |= {
            "keep": chosen.keep,
            "rarity": chosen.rarity,
            "rarity_weight": chosen.rarity_weight,
            "label_source": chosen.label_source,
        }
        if chosen.label_source == "metrics":
            settings["label_coverage"] = sites.coverage
    return settings
