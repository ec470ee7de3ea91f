"""The settings that all asynchronous strategies share, checked once."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, get_args

from fedraw.aggregation import Normalisation
from fedraw.clock import Clock, WallClock
from fedraw.errors import SettingError
from fedraw.metrics import MetricsAggregation, average_metrics
from fedraw.run.events import EventSink
from fedraw.run.roster import Policy
from fedraw.staleness import Polynomial, StalenessFunction

if TYPE_CHECKING:
    from fedraw.strategies.asynchronous import AsynchronousStrategy


class AsynchronousSettings:
    """Settings of an asynchronous strategy.

    Parameters
    ----------
    buffer_size : int
        Updates that make a version.
    concurrency : int
        Most jobs in flight. Fewer nodes than that work with less.
    server_lr : float
        Learning rate of the server.
    weigh_by : str
        ``uniform``, or ``examples`` (the metric ``weighted_by_key``).
    staleness : callable
        s, a function of tau; see ``strategies.staleness``.
    max_staleness : int or None
        An update older than that at its arrival is dropped.
    normalise : str
        ``entries``, ``buffer`` or ``weights``; see ``aggregation.coefficients``.
    clock : Clock or None
        ``VirtualClock`` for reproducible simulation; ``WallClock`` (default) takes arrivals as they come.
    dispatch : str
        Who gets a free place: ``available``, who waits longest; ``random``, a seeded choice.
    seed : int
        Seed of the dispatch and of the choice of clients for evaluation.
    sites : mapping of int to str or None
        Name of each node. Order, draws and logs go by name. None names nodes by the order of their ids, which
        Flower draws anew in each run; name them for runs that repeat exactly.
    buffer_keys : collection of str or None
        Arrays that no gradient moves, such as ``dict(module.named_buffers())``; None takes the names of batch
        normalisation.
    job_timeout : float or None
        Seconds after which a job counts as failed; None takes ``timeout`` of ``start`` on a wall clock and no
        limit on a virtual one.
    min_available_nodes : int
        Nodes to wait for at the start.
    node_timeout : float
        Real seconds to wait for nodes: at the start, and on a wall clock when all are gone.
    retry_after, retry_limit : float
        Seconds that a client pauses after its first failure, doubled with each further one in a row, and the
        most.
    give_up_after : int
        The run stops when every client has failed so many times in a row.
    fraction_evaluate : float
        Share of the clients that evaluate; 0 evaluates at no client.
    evaluate_every : int
        Versions between evaluations, at the server and at clients; the last version is always evaluated. On
        a wall clock clients evaluate the last version only: earlier they would be kept from training.
    weighted_by_key, arrayrecord_key, configrecord_key : str
        Keys in messages, as in Flower's strategies.
    train_metrics_aggr_fn, evaluate_metrics_aggr_fn : callable or None
        Average the metrics of the updates of a version, and of an evaluation, as in Flower's strategies.
    coverage_key : str
        Metric with a client's label coverage, a list with a 1 for each label that it holds. Clients need not
        send it.
    label_coverage : mapping of str to sequence of int or None
        Label coverage of sites that is known at the start.
    rare_sites : collection of str or None
        The rare group whose influence is measured; None takes the sites that hold rare labels by coverage.
    events : list or callable or None
        Where the records of the event log go.
    on_step : callable or None
        Called with the strategy after each event; ``state_dict`` is valid then.
    timing_only : bool
        Run the schedule without any message (virtual clock): shows participation before anybody trains.
    """

    def __init__(
        self,
        *,
        buffer_size: int = 4,
        concurrency: int = 10,
        server_lr: float = 1.0,
        weigh_by: str = "uniform",
        staleness: StalenessFunction | None = None,
        max_staleness: int | None = None,
        normalise: Normalisation = "entries",
        clock: Clock | None = None,
        dispatch: Policy = "available",
        seed: int = 0,
        sites: Mapping[int, str] | None = None,
        buffer_keys: Collection[str] | None = None,
        job_timeout: float | None = None,
        min_available_nodes: int = 2,
        node_timeout: float = 60.0,
        retry_after: float = 1.0,
        retry_limit: float = 60.0,
        give_up_after: int = 5,
        fraction_evaluate: float = 0.0,
        evaluate_every: int = 1,
        weighted_by_key: str = "num-examples",
        arrayrecord_key: str = "arrays",
        configrecord_key: str = "config",
        train_metrics_aggr_fn: MetricsAggregation | None = None,
        evaluate_metrics_aggr_fn: MetricsAggregation | None = None,
        coverage_key: str = "label-coverage",
        label_coverage: Mapping[str, Sequence[int]] | None = None,
        rare_sites: Collection[str] | None = None,
        events: EventSink | None = None,
        on_step: Callable[["AsynchronousStrategy"], None] | None = None,
        timing_only: bool = False,
    ) -> None:
        self.buffer_size = buffer_size
        self.concurrency = concurrency
        self.server_lr = server_lr
        self.weigh_by = weigh_by
        self.staleness = staleness or Polynomial(0.5)
        self.max_staleness = max_staleness
        self.normalise = normalise
        self.clock = clock or WallClock()
        self.dispatch = dispatch
        self.seed = seed
        self.sites = sites
        self.buffer_keys = buffer_keys
        self.job_timeout = job_timeout
        self.min_available_nodes = min_available_nodes
        self.node_timeout = node_timeout
        self.retry_after = retry_after
        self.retry_limit = retry_limit
        self.give_up_after = give_up_after
        self.fraction_evaluate = fraction_evaluate
        self.evaluate_every = evaluate_every
        self.weighted_by_key = weighted_by_key
        self.arrayrecord_key = arrayrecord_key
        self.configrecord_key = configrecord_key
        self.train_metrics_aggr_fn = train_metrics_aggr_fn or average_metrics
        self.evaluate_metrics_aggr_fn = evaluate_metrics_aggr_fn or average_metrics
        self.coverage_key = coverage_key
        self.label_coverage = label_coverage
        self.rare_sites = rare_sites
        self.events = events
        self.on_step = on_step
        self.timing_only = timing_only
        self._check_settings()

    def _check_settings(self) -> None:
        for setting, least in (("buffer_size", 1), ("concurrency", 1), ("min_available_nodes", 1)):
            _check(setting, getattr(self, setting), getattr(self, setting) >= least, f"at least {least}")
        for setting in ("give_up_after", "evaluate_every"):
            _check(setting, getattr(self, setting), getattr(self, setting) >= 1, "at least 1")
        for setting in ("server_lr", "retry_after", "retry_limit"):
            value = getattr(self, setting)
            _check(setting, value, value > 0 and math.isfinite(value), "a finite number above 0")
        _check("seed", self.seed, self.seed >= 0, "not negative")
        _check("weigh_by", self.weigh_by, self.weigh_by in ("uniform", "examples"), "'uniform' or 'examples'")
        for setting, kind in (("normalise", Normalisation), ("dispatch", Policy)):
            allowed = get_args(kind)
            _check(setting, getattr(self, setting), getattr(self, setting) in allowed, f"one of {allowed}")
        _check(
            "max_staleness",
            self.max_staleness,
            (self.max_staleness or 0) >= 0,
            "None or a number of versions",
        )
        timeout = self.job_timeout
        _check("job_timeout", timeout, timeout is None or timeout > 0, "None or seconds above 0")
        _check(
            "fraction_evaluate",
            self.fraction_evaluate,
            0 <= self.fraction_evaluate <= 1,
            "a share of the clients",
        )
        if self.timing_only and not self.clock.virtual:
            raise SettingError("timing_only needs a VirtualClock: without messages only computed time passes")


def _check(setting: str, value: object, fine: bool, allowed: str) -> None:
    if not fine:
        raise SettingError(f"{setting} is {value!r}; it must be {allowed}")
