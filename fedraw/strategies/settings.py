"""The settings that all asynchronous strategies share: their types, defaults and checks, once."""

import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, TypedDict, get_args

from fedraw.aggregation import Normalisation
from fedraw.clock import Clock, WallClock
from fedraw.errors import SettingError
from fedraw.metrics import MetricsAggregation, average_metrics
from fedraw.names import did_you_mean
from fedraw.run.events import EventSink
from fedraw.run.roster import Policy
from fedraw.staleness import Polynomial, StalenessFunction

LOGGER = logging.getLogger("flwr.fedraw")


class FlowerSettings(TypedDict, total=False):
    """The constructor arguments of Flower's ``FedAvg``."""

    fraction_train: float
    fraction_evaluate: float
    min_train_nodes: int
    min_evaluate_nodes: int
    min_available_nodes: int
    weighted_by_key: str
    arrayrecord_key: str
    configrecord_key: str
    train_metrics_aggr_fn: MetricsAggregation | None
    evaluate_metrics_aggr_fn: MetricsAggregation | None


class AsynchronousSettings(FlowerSettings, total=False):
    """The keyword arguments of every asynchronous strategy; see ``Settings`` for what they mean."""

    concurrency: int
    server_lr: float
    weigh_by: str
    staleness: StalenessFunction | None
    max_staleness: int | None
    normalise: Normalisation
    clock: Clock | None
    dispatch: Policy
    seed: int
    sites: Mapping[int, str] | None
    buffer_keys: Collection[str] | None
    job_timeout: float | None
    node_timeout: float
    retry_after: float
    retry_limit: float
    give_up_after: int
    evaluate_every: int
    coverage_key: str
    label_coverage: Mapping[str, Sequence[int]] | None
    rare_sites: Collection[str] | None
    events: EventSink | None
    on_step: Callable[[Any], None] | None
    timing_only: bool


class BufferedSettings(AsynchronousSettings, total=False):
    """The keyword arguments of the asynchronous strategies with a buffer."""

    buffer_size: int


# Arguments of FedAvg that say how a round is made; there is none.
WITHOUT_MEANING = ("fraction_train", "min_train_nodes", "min_evaluate_nodes")


class Settings:
    """Settings of an asynchronous strategy, as attributes; a strategy gives its own defaults as its own.

    Attributes
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
        s, a function of tau; see ``fedraw.staleness``.
    max_staleness : int or None
        An update older than that at its arrival is dropped.
    normalise : str
        ``entries``, ``buffer`` or ``weights``; see ``aggregation.coefficients``.
    clock : Clock
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
    train_metrics_aggr_fn, evaluate_metrics_aggr_fn : callable
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

    ``fraction_train``, ``min_train_nodes`` and ``min_evaluate_nodes`` of Flower's strategies are taken, and
    named in a warning: there are no rounds.

    Raises
    ------
    TypeError
        There is no setting of a name.
    SettingError
        A setting is outside of what is allowed.
    """

    buffered: ClassVar[bool] = True
    """Whether a version waits for ``buffer_size`` updates."""

    buffer_size: int = 4
    concurrency: int = 10
    server_lr: float = 1.0
    weigh_by: str = "uniform"
    staleness: StalenessFunction = Polynomial(0.5)
    max_staleness: int | None = None
    normalise: Normalisation = "entries"
    clock: Clock
    dispatch: Policy = "available"
    seed: int = 0
    sites: Mapping[int, str] | None = None
    buffer_keys: Collection[str] | None = None
    job_timeout: float | None = None
    min_available_nodes: int = 2
    node_timeout: float = 60.0
    retry_after: float = 1.0
    retry_limit: float = 60.0
    give_up_after: int = 5
    fraction_evaluate: float = 0.0
    evaluate_every: int = 1
    weighted_by_key: str = "num-examples"
    arrayrecord_key: str = "arrays"
    configrecord_key: str = "config"
    train_metrics_aggr_fn: MetricsAggregation = staticmethod(average_metrics)
    evaluate_metrics_aggr_fn: MetricsAggregation = staticmethod(average_metrics)
    coverage_key: str = "label-coverage"
    label_coverage: Mapping[str, Sequence[int]] | None = None
    rare_sites: Collection[str] | None = None
    events: EventSink | None = None
    on_step: Callable[[Any], None] | None = None
    timing_only: bool = False

    def _take_settings(self, settings: Mapping[str, Any]) -> None:
        """Make attributes of the settings; None stands for the default where there is one."""
        kind = type(self).__name__
        for name, value in settings.items():
            if name not in BufferedSettings.__annotations__:
                near = did_you_mean(name, BufferedSettings.__annotations__)
                raise TypeError(f"{kind} has no setting '{name}'{near}")
            if name == "buffer_size" and not self.buffered:
                raise SettingError(
                    f"buffer_size is {value!r}; {kind} has no buffer, each update makes a version"
                )
            if value is not None and name not in WITHOUT_MEANING:
                setattr(self, name, value)
        if "clock" not in vars(self):
            self.clock = WallClock()
        if idle := [name for name in WITHOUT_MEANING if name in settings]:
            LOGGER.warning(
                "%s has no rounds, so %s of FedAvg %s nothing; `concurrency` bounds how many clients train, "
                "`fraction_evaluate` how many evaluate",
                kind,
                " and ".join(idle),
                "does" if len(idle) == 1 else "do",
            )
        self._check_settings()

    def _check_settings(self) -> None:
        for setting in (
            *("buffer_size", "concurrency", "min_available_nodes", "give_up_after", "evaluate_every"),
        ):
            value = getattr(self, setting)
            _check(setting, value, value >= 1, "at least 1")
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
