"""One federated training, in rounds or asynchronous: weights in, a strategy, and weights out.

A run of FedRAW is one training; a label round of FairFAL is one, too.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp.strategy import Result

from datasets.federated import FederatedData
from federation import records
from federation.client import array_record, initial_model
from federation.config.run_config import RunConfig
from federation.errors import AllClientsFailedError, DivergedError
from federation.evaluation import NonFinitePredictionsError, ServerEvaluation, clients_measures
from federation.measures import LAST, headline, last_means
from federation.messages.connected import ConnectedGrid
from federation.messages.grid import ClientGrid
from federation.runs.checkpoints import Checkpoint
from federation.runs.progress import quiet_flower
from federation.runs.run_folder import RunFolder
from fedraw.errors import RunStoppedError
from fedraw.registry import TrainingStrategy
from fedraw.run.events import Event
from fedraw.run.influence import Influence
from fedraw.strategies.asynchronous import AsynchronousStrategy
from fedraw_app.influence import influence_measures, influence_rows
from fedraw_app.options import TrainingSites, read_delays, training_strategy
from fedraw_app.timed_rounds import TimedGrid

# Events that wait to be written: a version a file write would be slow where versions are small.
EVENTS_AT_ONCE = 256
Keep = Callable[[Callable[[], Checkpoint], bool], None]


@dataclass(frozen=True)
class Part:
    """What tells one training of a run from another.

    Attributes
    ----------
    seed
        Seed of the strategy's draws.
    sites
        The sites that train.
    tell
        Takes a step that is done and what there is to tell of it.
    keep
        Takes what makes a checkpoint of the training, and whether it is needed.
    label_round
        From 1; 0 is the only training of its run.
    columns
        Columns that its rows of ``rounds.csv`` have after the round.
    """

    seed: int
    sites: TrainingSites
    tell: Callable[[int, Mapping[str, float | str]], None]
    keep: Keep
    label_round: int = 0
    columns: Mapping[str, Any] = field(default_factory=dict)


class Training:
    """One training on the participants of ``clients``; ``run`` may be called once.

    Attributes
    ----------
    rows
        The rows that it has in ``rounds.csv``.
    failures
        Jobs of an asynchronous training that failed, a line each.
    published
        Time of each step: of a round's or version's end, in seconds since the start.
    influence
        Who shaped the model.
    latest
        The model of the last step; None before the first.
    result
        What the strategy returned; None before the end.
    """

    def __init__(
        self,
        clients: ClientGrid,
        config: RunConfig,
        data: FederatedData,
        folder: RunFolder,
        evaluation: ServerEvaluation,
        part: Part,
    ) -> None:
        self.clients = clients
        self.config = config
        self.data = data
        self.folder = folder
        self.evaluation = evaluation
        self.part = part
        self.rows: list[dict[str, Any]] = []
        self.failures: list[str] = []
        self.published: dict[int, float] = {0: 0.0}
        self.influence = Influence()
        self.latest: ArrayRecord | None = None
        self.result: Result | None = None
        self._names = dict(part.sites.names)
        self._sites = TrainingSites(self._names, part.sites.examples, part.sites.coverage)
        self._contributors: tuple[int, list[str]] = 0, []
        self._events: list[Event] = []
        self._timed: TimedGrid | None = None
        # On a wall clock versions are measured in a thread of its own.
        self._measuring = threading.Lock()

    @property
    def rare_sites(self) -> frozenset[str]:
        """The sites that hold a rare label."""
        return self._sites.holding(self.data.rare_labels)

    def run(self, checkpoint: Checkpoint | None = None) -> Result:
        """Train, from a checkpoint of ``state`` if there is one.

        Raises
        ------
        RunStoppedError
            An asynchronous training could not go on; its result so far is in ``result``.
        DivergedError
            The model, or that of every client, is not finite any more.
        """
        strategy, grid = self._prepare()
        if checkpoint is not None:
            self._restore(checkpoint.state)
            strategy.load_state(checkpoint.arrays, checkpoint.state["strategy"])
        config = self.config
        try:
            with quiet_flower():
                result = strategy.start(
                    grid=grid,
                    initial_arrays=array_record(initial_model(config, self.data, self.part.label_round)),
                    num_rounds=config.steps,
                    timeout=config.nodes.reply_timeout,
                    train_config=self._train_config(),
                    evaluate_fn=None if config.clock.timing_only else self._evaluate,
                )
        except AllClientsFailedError as error:
            if 2 * sum(map(_tells_of_divergence, error.reasons)) >= len(error.reasons):
                raise DivergedError(self._place(strategy.version + 1), str(error)) from None
            raise
        except RunStoppedError as error:
            self.result = error.result
            if _tells_of_divergence(str(error)):
                raise DivergedError(self._place(strategy.version + 1), str(error)) from None
            raise
        finally:
            self._note_influence(strategy)
            self._write_events()
        self.result = result
        # After a kill between the last checkpoint and the end nothing was measured here.
        if self.rows and not self.evaluation.confusion.any():
            self.evaluation(result.arrays)
        # On a wall clock a kill can come between the last version and its measures.
        if not config.clock.timing_only and self._last_row_step() < config.steps:
            self._evaluate(config.steps, result.arrays)
        self.latest = result.arrays
        return result

    def _prepare(self) -> tuple[TrainingStrategy, ClientGrid]:
        """Return the strategy, and the grid on which it runs."""
        config, part = self.config, self.part
        strategy = training_strategy(
            config,
            self._sites,
            self.data.rare_labels,
            part.seed,
            fraction_evaluate=1.0 if config.evaluate.clients and config.strategy.asynchronous else 0.0,
            evaluate_every=1 if part.label_round else config.evaluate.every,
            events=self._take_event,
        )
        strategy.on_step = self._after_step
        if isinstance(strategy, AsynchronousStrategy):
            return strategy, ConnectedGrid(self.clients, self._names)
        delays = read_delays(config, self._sites, self.rare_sites) if self.config.clock.virtual else None
        self._timed = TimedGrid(self.clients, delays, part.seed, self.rare_sites, self._take_event)
        self.influence = self._timed.influence
        return strategy, self._timed

    def _train_config(self) -> ConfigRecord | None:
        if not self.part.label_round:
            return None
        return ConfigRecord({records.RUN: self.folder.key, records.LABEL_ROUND: self.part.label_round})

    # Checkpoints -------------------------------------------------------------------------------------------

    def _after_step(self, strategy: TrainingStrategy) -> None:
        self._note_influence(strategy)
        with self._measuring:
            self.part.keep(lambda: self._state(strategy), strategy.version >= self.config.steps)

    def _note_influence(self, strategy: TrainingStrategy) -> None:
        if isinstance(strategy, AsynchronousStrategy):
            self.influence = strategy.influence

    def _state(self, strategy: TrainingStrategy) -> Checkpoint:
        """Return what the training goes on from, when all rows that belong to it are in their tables."""
        self._write_events()
        arrays, state = strategy.state_dict()
        return Checkpoint(
            arrays,
            {
                "strategy": state,
                "rounds": self._timed.state() if self._timed else None,
                "rows": self.rows,
                "failures": self.failures,
                "published": sorted(self.published.items()),
            },
        )

    def _restore(self, state: Mapping[str, Any]) -> None:
        if self._timed is not None:
            self._timed.restore(state["rounds"])
            self.influence = self._timed.influence
        self.rows, self.failures = state["rows"], state["failures"]
        self.published = dict(state["published"])

    # What happens ------------------------------------------------------------------------------------------

    def _take_event(self, event: Event) -> None:
        self._events.append(event)
        if event.kind == "publish":
            self.published[event.version] = event.time
            if len(self._events) >= EVENTS_AT_ONCE:
                self._write_events()
        elif event.kind == "aggregate":
            version, sites = self._contributors
            self._contributors = event.version, [*(sites if version == event.version else ()), event.site]
        elif event.kind == "fail" and self._timed is None:  # the grid tells of those in rounds
            where = f"label round {self.part.label_round}, " if self.part.label_round else ""
            self.failures.append(
                f"{where}job {event.job} of {event.site} on version {event.version}: {event.reason}"
            )

    def _write_events(self) -> None:
        if self._events:
            head = {"label_round": self.part.label_round} if self.part.label_round else {}
            self.folder.append_events([head | event._asdict() for event in self._events])
            self._events = []

    def _due(self, step: int) -> bool:
        """Whether a step is evaluated: every so many, and the last ones.

        Step 0, the untrained model, is where the curve of a single training begins; label rounds, which start
        from such a model each time, have no use for it.
        """
        if self.part.label_round and step == 0:
            return False
        last = LAST if self.part.label_round else 1
        return step % self.config.evaluate.every == 0 or step > self.config.steps - last

    def _evaluate(self, step: int, arrays: ArrayRecord) -> MetricRecord | None:
        """Measure a step of the model if it is its turn, and tell of it."""
        told: dict[str, float | str] = {}
        if step in self.published and (self.config.strategy.asynchronous or not self.part.label_round):
            told["virtual time" if self.config.clock.virtual else "time"] = f"{self.published[step]:.1f} s"
        due = self._due(step)
        if due:
            row = self._measure(step, arrays)
            with self._measuring:
                self.rows.append(row)
                self.folder.append_round(row)
            told |= headline(row)
        if step:
            self.latest = arrays
        if step and (due or self.part.label_round):
            self.part.tell(step, told)
        return None

    def _measure(self, step: int, arrays: ArrayRecord) -> dict[str, Any]:
        label_round = self.part.label_round
        row: dict[str, Any] = {"version": step, "time": self.published[step]}
        if label_round:
            row = {"label_round": label_round, "round": step, **self.part.columns}
        try:
            row |= self.evaluation(arrays)
        except NonFinitePredictionsError as error:
            version, sites = self._contributors
            found = f"{error}; updates of {', '.join(sites)} are in it" if version == step else str(error)
            raise DivergedError(self._place(step), found) from None
        if self.config.evaluate.clients and not self.config.strategy.asynchronous and step:
            timeout = self.config.nodes.reply_timeout
            row |= clients_measures(self.clients, label_round, step, arrays, timeout)
        return row

    def _place(self, step: int) -> str:
        name = f"{'version' if self.config.strategy.asynchronous else 'round'} {step}"
        return f"label round {self.part.label_round}, {name}" if self.part.label_round else name

    def _last_row_step(self) -> int:
        return int(self.rows[-1]["round" if self.part.label_round else "version"]) if self.rows else -1

    # Results -----------------------------------------------------------------------------------------------

    def influence_rows(self) -> list[dict[str, Any]]:
        """Return the rows of ``influence.csv``; none before the first step."""
        if not self.influence.flushes:
            return []
        head = {"label_round": self.part.label_round} if self.part.label_round else {}
        rows = influence_rows(self.influence, self._sites.examples, self.rare_sites)
        return [head | row for row in rows]

    def influence_summary(self) -> dict[str, Any]:
        """Return counts and biases of the training so far."""
        told = getattr(self.result, "influence", None)
        if told is not None:
            return dict(told)
        return self.influence.summary(list(self._sites.examples), self.rare_sites, 0, 0)

    def final_row(self) -> dict[str, Any]:
        """Return the last measures, the means of the last five, and who shaped the model."""
        row: dict[str, Any] = {}
        if self.rows:
            row = self.rows[-1] | last_means(self.rows)
        if self.result is not None and (told := self.result.evaluate_metrics_clientapp):
            last_told = told[max(told)]
            row |= {f"client_{key}": last_told[key] for key in (records.ACCURACY, records.LOSS)}
        return row | influence_measures(self.influence_summary())


def _tells_of_divergence(reason: str) -> bool:
    """Whether a failure's reason says that a client's loss or arrays were not finite."""
    return any(words in reason for words in ("not finite", "NaN or infinite"))
