"""What every asynchronous strategy has in common, and the places where they differ."""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, ClassVar, Self, Unpack

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedraw import aggregation
from fedraw.aggregation import Arrays
from fedraw.errors import CheckpointError, StrategyError
from fedraw.label_coverage import LabelCoverage
from fedraw.metrics import with_examples
from fedraw.options import AsynchronousOptions, BufferedOptions, check_options
from fedraw.randomness import generator
from fedraw.run.buffer import Buffer, Entry, Keep
from fedraw.run.checkpoint import under
from fedraw.run.influence import Influence
from fedraw.run.loop import AsynchronousRun
from fedraw.run.roster import Roster
from fedraw.staleness import staleness_factors
from fedraw.strategies.settings import AsynchronousSettings, BufferedSettings, Settings

LOGGER = logging.getLogger("flwr.fedraw")


class AsynchronousStrategy(Settings, Strategy):
    """A strategy without rounds: clients work all the time, and every full buffer makes a version.

    Started as Flower's strategies are, with ``start(...)``, where ``num_rounds`` is the number of versions. A
    version is made of ``buffer_size`` updates, ``w <- w + server_lr * sum_i p_i s(tau_i) D_i``: D_i is the
    client's change of the arrays that it was sent, tau_i the number of versions published since it was sent
    them, and p the weights, normalised over the buffer before s is applied.

    Flower's wrappers for differential privacy run rounds of their own and cannot drive such a strategy; put
    ``flwr.clientapp.mod.LocalDpMod`` into the ClientApp instead: ``ClientApp(mods=[LocalDpMod(...)])``.

    Takes ``BufferedSettings`` by keyword; ``Settings`` tells what they mean.
    """

    asynchronous: ClassVar[bool] = True
    paper: ClassVar[str]
    """Where it is from, such as ``arXiv 2106.06639``."""
    Options: ClassVar[type[AsynchronousOptions]] = BufferedOptions
    """What a configuration can set."""

    keep: Keep = "off"

    def __init__(self, **settings: Unpack[BufferedSettings]) -> None:
        super().__init__()
        self._take_settings(settings)
        self.coverage = LabelCoverage(self.label_coverage)
        self._run: AsynchronousRun | None = None
        self._resume: tuple[dict[str, np.ndarray], dict[str, Any]] | None = None

    @classmethod
    def configured(
        cls, options: AsynchronousOptions, settings: AsynchronousSettings, *, clients: int
    ) -> Self:
        """Return the strategy that a configuration describes.

        Parameters
        ----------
        options : AsynchronousOptions
            An instance of the class's ``Options``.
        settings : AsynchronousSettings
            What the run knows and no option says, such as ``seed``, ``sites`` and ``clock``.
        clients : int
            Clients that train.

        Raises
        ------
        OptionError
            An option is outside of what is allowed.
        """
        check_options(options)
        return cls(**{**settings, **options.settings(clients)})

    def begin(self) -> None:
        """Forget what earlier runs left in the strategy."""
        self.coverage = LabelCoverage(self.label_coverage)

    def make_buffer(self) -> Buffer:
        """Return an empty buffer; ``keep`` says what a second update of a client does to the first."""
        return Buffer(self.keep)

    def received(self, entry: Entry, sent: Arrays) -> None:
        """Take note of an update that came in, trained from ``sent``, before anything else."""
        if self.coverage_key in entry.metrics:
            self.coverage.update(entry.site, entry.metrics[self.coverage_key])

    def is_ready(self, buffer: Buffer, roster: Roster) -> bool:
        """Tell whether the buffer makes a version now.

        That is at ``buffer_size`` updates. With one place a client, and fewer clients than that who can be
        expected to send one, it is when each of them has.
        """
        if len(buffer) >= self.buffer_size:
            return True
        return len(buffer) > 0 and self.keep != "off" and self._cycle_is_over(buffer, roster)

    def _cycle_is_over(self, buffer: Buffer, roster: Roster) -> bool:
        if roster.reaches(self.buffer_size):
            return False
        expected = roster.reachable()
        return len(expected | buffer.sites) < self.buffer_size and expected <= buffer.sites

    def base_weights(self, entries: Sequence[Entry]) -> np.ndarray:
        """Return q, the weights by ``weigh_by``, (k,), normalised."""
        if self.weigh_by == "uniform":
            return np.full(len(entries), 1.0 / len(entries))
        return aggregation.normalised(np.array([entry.examples or 0.0 for entry in entries]))

    def weights(self, entries: Sequence[Entry], taus: Sequence[int]) -> np.ndarray:
        """Return p, the weights of updates before staleness, (k,); they need not be normalised."""
        return self.base_weights(entries)

    def coefficients(self, entries: Sequence[Entry], taus: Sequence[int]) -> np.ndarray:
        """Return what each update is multiplied with, (k,): ``p s`` by the kind of normalisation."""
        return aggregation.coefficients(
            self.weights(entries, taus),
            staleness_factors(self.staleness, taus),
            self.normalise,
            self.buffer_size,
        )

    def update(self, arrays: Arrays, entries: Sequence[Entry], factors: np.ndarray) -> Arrays:
        """Return the arrays of the next version from the present ones and the buffer.

        Parameters
        ----------
        arrays : dict of str to ndarray
            Present version; left as it is.
        entries : sequence of Entry
            Updates in the order of sites.
        factors : (k,) float
            What ``coefficients`` gave.
        """
        step = {
            key: aggregation.weighted_sum(factors, [entry.deltas[key] for entry in entries])
            for key in entries[0].deltas
        }
        return self.apply(arrays, step, entries, factors)

    def apply(self, arrays: Arrays, step: Arrays, entries: Sequence[Entry], factors: np.ndarray) -> Arrays:
        """Return ``w + server_lr * step`` for parameters, and the mix of values for buffers."""
        buffers = {key: value for key, value in arrays.items() if key not in step}
        mixed = aggregation.mix_buffers(buffers, [entry.values for entry in entries], factors, self.server_lr)
        return {
            key: aggregation.add_scaled(value, step[key], self.server_lr) if key in step else mixed[key]
            for key, value in arrays.items()
        }

    def rare_group(self) -> Collection[str]:
        """Return the sites whose influence is measured against that of all."""
        return self.coverage.rare_sites() if self.rare_sites is None else self.rare_sites

    def contributions(self, entries: Sequence[Entry], factors: np.ndarray) -> dict[str, float]:
        """Return the weight of each site in the step of a flush, for the measures of influence."""
        result: dict[str, float] = {}
        for entry, factor in zip(entries, factors, strict=True):
            result[entry.site] = result.get(entry.site, 0.0) + float(factor)
        return result

    def own_state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return what the strategy itself remembers between flushes, as arrays and JSON."""
        return {}, {}

    def restore_own_state(self, arrays: dict[str, np.ndarray], state: dict[str, Any]) -> None:
        """Go back to a state of ``own_state``."""

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run until ``num_rounds`` versions are published.

        Parameters
        ----------
        grid : Grid
            Flower's grid.
        initial_arrays : ArrayRecord
            Version 0; after ``load_state`` the arrays of the checkpoint take its place.
        num_rounds : int
            Versions to publish, counted from 0 also after ``load_state``.
        timeout : float
            Real seconds to wait for one reply.
        train_config, evaluate_config : ConfigRecord or None
            What clients get with each job. ``server-round`` (version + 1) and ``job`` (count of the client's
            jobs) are added to a copy of it.
        evaluate_fn : callable or None
            Server-side evaluation of a version. On a wall clock it runs in a thread of its own, so that no
            arrival waits for it.

        Returns
        -------
        AsynchronousResult
            Flower's result with versions for rounds, and the measures of influence.

        Raises
        ------
        RunStoppedError
            The run cannot go on; the error keeps what was aggregated so far.
        """
        self.begin()
        self._run = AsynchronousRun(
            self, self, grid, initial_arrays, num_rounds, timeout, train_config, evaluate_config, evaluate_fn
        )
        if self._resume is not None:
            (arrays, state), self._resume = self._resume, None
            self._run.restore(arrays, state)
            self.coverage.restore(state["coverage"])
            self.restore_own_state(under(arrays, "own/"), state["own"])
        self.summary()
        return self._run.complete()

    def summary(self) -> None:
        """Log the settings in one line."""
        LOGGER.info(
            "%s: buffer size %d, concurrency %d, server learning rate %g, weights %s, staleness %s, %s",
            type(self).__name__,
            self.buffer_size,
            self.concurrency,
            self.server_lr,
            self.weigh_by,
            self.staleness,
            type(self.clock).__name__,
        )

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Refuse: there are no rounds to configure."""
        raise StrategyError(
            f"{type(self).__name__} has no rounds: call its own start(). A wrapper that runs rounds of its "
            "own, as Flower's differential privacy does, cannot drive it; use LocalDpMod in the ClientApp"
        )

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Refuse, as ``configure_train`` does."""
        raise StrategyError(f"{type(self).__name__} has no rounds: call its own start()")

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return one message for each client that evaluates: a seeded share, by name."""
        nodes = sorted(grid.get_node_ids(), key=lambda node: ((self.sites or {}).get(node, ""), node))
        count = round(self.fraction_evaluate * len(nodes))
        if self.fraction_evaluate > 0:
            count = max(1, count)
        rng = generator(self.seed, "evaluation", server_round)
        chosen = sorted(rng.choice(len(nodes), size=count, replace=False).tolist()) if nodes else []
        return [
            Message(
                RecordDict(
                    {
                        self.arrayrecord_key: arrays,
                        self.configrecord_key: ConfigRecord({**config, "server-round": server_round}),
                    }
                ),
                dst_node_id=nodes[i],
                message_type=MessageType.EVALUATE,
            )
            for i in chosen
        ]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Return the average of the metrics of the replies that have content and measured anything."""
        measured = with_examples(replies, self.weighted_by_key)
        contents = [reply.content for reply in measured if reply.has_content()]
        return self.evaluate_metrics_aggr_fn(contents, self.weighted_by_key) if contents else None

    @property
    def version(self) -> int:
        """Versions published in the present run."""
        return 0 if self._run is None else self._run.state.versions.current

    @property
    def number_of_clients(self) -> int:
        """Clients known in the present run."""
        return 0 if self._run is None else len(self._run.state.roster.clients)

    @property
    def influence(self) -> Influence:
        """Counts of the present run."""
        return Influence() if self._run is None else self._run.state.influence

    def state_dict(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the state of the run as named arrays and a dictionary for JSON.

        Valid within ``on_step`` and after ``start``. Jobs in flight are in it as what was sent: on a virtual
        clock they are sent again after a restart.
        """
        if self._run is None:
            raise CheckpointError("there is no run to save: call state_dict within on_step, or after start()")
        arrays, state = self._run.pack()
        own_arrays, own_state = self.own_state()
        arrays |= {f"own/{name}": array for name, array in own_arrays.items()}
        own = {"strategy": type(self).__name__, "coverage": self.coverage.state(), "own": own_state}
        return arrays, state | own

    def load_state(self, arrays: dict[str, np.ndarray], state: dict[str, Any]) -> None:
        """Let the next ``start`` go on from a state of ``state_dict``.

        Raises
        ------
        CheckpointError
            The state is of another strategy.
        """
        if state.get("strategy") != type(self).__name__:
            raise CheckpointError(
                f"the checkpoint is of {state.get('strategy')}, this is {type(self).__name__}; resume "
                "with the strategy that wrote it"
            )
        self._resume = (arrays, state)
