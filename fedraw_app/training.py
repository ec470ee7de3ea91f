"""One training with all labels known, by any strategy: what it measures and what it leaves in its folder."""

import math
import threading
from typing import Any

import numpy as np
import pandas as pd
from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp.strategy import Result

from datasets.federated import FederatedData
from datasets.randomness import draw_seed
from federation import records
from federation.client import array_record, initial_model
from federation.config.run_config import RunConfig
from federation.evaluation import ServerEvaluation
from federation.messages.connected import ConnectedGrid
from federation.messages.grid import ClientGrid
from federation.messages.hello import Federation
from federation.runs.checkpoints import Checkpoint
from federation.runs.progress import NOTICE, StepProgress, headline, logger, quiet_flower, table_text
from federation.runs.provenance import Session
from federation.runs.run_folder import INFLUENCE_PLOT, STALENESS_PLOT, TIME_PLOT, RunFolder
from fedraw import AsynchronousStrategy
from fedraw.errors import RunStoppedError
from fedraw.registry import TrainingStrategy
from fedraw.run.events import Event
from fedraw.run.influence import Influence
from fedraw.run.result import AsynchronousResult
from fedraw_app.influence import influence_rows
from fedraw_app.options import TrainingSites, read_delays, training_strategy
from fedraw_app.plots import draw_accuracy, draw_influence, draw_staleness
from fedraw_app.timed_rounds import TimedGrid
from learning.measure import Measures

# Accuracies for which the summary tells when they were reached.
MILESTONES = tuple(round(0.05 * step, 2) for step in range(4, 20))
# Events that wait to be written: a version a file write would be slow where versions are small.
EVENTS_AT_ONCE = 256
LAST = 5


class Training:
    """One training of the federation that ``config`` describes.

    ``run`` may be called once; the summary can be asked for at any time.
    """

    def __init__(
        self,
        clients: ClientGrid,
        config: RunConfig,
        data: FederatedData,
        folder: RunFolder,
        federation: Federation,
    ) -> None:
        self.clients = clients
        self.config = config
        self.data = data
        self.folder = folder
        self.evaluation = ServerEvaluation(config, data)
        self.step = "version" if config.strategy.asynchronous else "round"
        self.rows: list[dict[str, Any]] = []
        self.failures: list[str] = []
        self.published: dict[int, float] = {0: 0.0}
        self.influence = Influence()
        self.names = {site.node_id: site.name for site in federation.sites}
        self.sites = TrainingSites(
            names=self.names,
            examples={site.name: site.pool_size for site in federation.sites},
            coverage={site.name: site.label_coverage for site in federation.sites},
        )
        self.session = Session(config, clients, federation, folder)
        self.result: Result | None = None
        self.latest: ArrayRecord | None = None
        self._events: list[Event] = []
        self._timed: TimedGrid | None = None
        # On a wall clock versions are measured in a thread of its own.
        self._measuring = threading.Lock()

    def run(self, checkpoint: Checkpoint | None = None) -> None:
        """Train, from a checkpoint if there is one, and leave tables, plots, model and summary in the folder.

        Raises
        ------
        RunStoppedError
            An asynchronous run could not go on; its model so far is in the folder.
        """
        done = checkpoint.state["strategy"]["version"] if checkpoint else 0
        self.progress = StepProgress(self.step, self.config.steps, done)
        try:
            result = self._train(checkpoint)
        except RunStoppedError as error:
            self._save(error.result)
            raise
        except BaseException:
            if self.latest is not None:
                self._save_model(self.latest)
            raise
        finally:
            self._write_events()
        self._save(result)
        if self.rows:
            self.folder.write_confusion(self.evaluation.confusion)
        self.folder.write_summary(self.summary(), "finished")
        self._tell()

    def _train(self, checkpoint: Checkpoint | None) -> Result:
        config = self.config
        seed = draw_seed(config.seed, "strategy")
        strategy = training_strategy(
            config,
            self.sites,
            self.data.rare_labels,
            seed,
            fraction_evaluate=1.0 if config.evaluate.clients else 0.0,
            evaluate_every=config.evaluate.every,
            events=self._take_event,
        )
        clients = self.clients
        strategy.on_step = self._after_step
        if isinstance(strategy, AsynchronousStrategy):
            clients = ConnectedGrid(clients, self.names)
        else:
            delays = read_delays(config, self.sites, self.rare_sites) if self.virtual else None
            self._timed = clients = TimedGrid(clients, delays, seed, self.rare_sites, self._take_event)
            self.influence = clients.influence
        if checkpoint is not None:
            self._restore(checkpoint.state)
            strategy.load_state(checkpoint.arrays, checkpoint.state["strategy"])
        with quiet_flower():
            result = strategy.start(
                grid=clients,
                initial_arrays=array_record(initial_model(config, self.data, label_round=0)),
                num_rounds=config.steps,
                timeout=config.nodes.reply_timeout,
                evaluate_fn=None if config.clock.timing_only else self._evaluate,
            )
        if isinstance(strategy, AsynchronousStrategy):
            self.influence = strategy.influence
        # On a wall clock a kill can come between the last version and its measures.
        if not config.clock.timing_only and self.rows[-1]["version"] < config.steps:
            self._evaluate(config.steps, result.arrays)
        return result

    @property
    def virtual(self) -> bool:
        """Whether time is computed."""
        return self.config.clock.name == "virtual"

    @property
    def rare_sites(self) -> frozenset[str]:
        """The sites that hold a rare label."""
        return self.sites.holding(self.data.rare_labels)

    def _after_step(self, strategy: TrainingStrategy) -> None:
        if isinstance(strategy, AsynchronousStrategy):
            self.influence = strategy.influence
        with self._measuring:
            last = strategy.version >= self.config.steps
            self.folder.checkpoint(lambda: self._state(strategy), needed=last)

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
                "session": self.session.state(),
            },
        )

    def _restore(self, state: dict[str, Any]) -> None:
        if self._timed is not None:
            self._timed.restore(state["rounds"])
            self.influence = self._timed.influence
        self.rows, self.failures = state["rows"], state["failures"]
        self.published = dict(state["published"])
        self.session.restore(state["session"])

    def _take_event(self, event: Event) -> None:
        self._events.append(event)
        if event.kind == "publish":
            self.published[event.version] = event.time
            if len(self._events) >= EVENTS_AT_ONCE:
                self._write_events()
        elif event.kind == "fail":
            self.failures.append(
                f"job {event.job} of {event.site} on version {event.version}: {event.reason}"
            )

    def _write_events(self) -> None:
        if self._events:
            self.folder.append_events([event._asdict() for event in self._events])
            self._events = []

    def _evaluate(self, version: int, arrays: ArrayRecord) -> MetricRecord | None:
        """Measure a version of the model if it is its turn; version 0 is the untrained model."""
        self.latest = arrays
        last = version == self.config.steps
        if version % self.config.evaluate.every and not last:
            return None
        measures = self.evaluation(arrays)
        row = {"version": version, "time": self.published[version]} | _measures(measures)
        row |= {f"accuracy_class_{label}": value for label, value in enumerate(measures.per_class)}
        with self._measuring:
            self.rows.append(row)
            self.folder.append_round(row)
        if version:
            time = {"virtual time" if self.virtual else "time": f"{row['time']:.1f} s"}
            self.progress.done(version, {**time, **headline(measures)})
        return None

    # Results -----------------------------------------------------------------------------------------------

    def _save(self, result: Result) -> None:
        """Write model, tables and plots of what was trained."""
        self.result = result
        if not self.config.clock.timing_only:
            self._save_model(result.arrays)
        if self.influence.flushes:
            rows = influence_rows(self.influence, set(self.names.values()), self.rare_sites)
            self.folder.write_influence(rows)
            self.folder.save_figure(INFLUENCE_PLOT, draw_influence(rows[:-1]))
            self.folder.save_figure(STALENESS_PLOT, draw_staleness(self.influence.staleness))
        if self.rows:
            self.folder.save_figure(TIME_PLOT, draw_accuracy(pd.DataFrame(self.rows), self.virtual))

    def _save_model(self, arrays: ArrayRecord) -> None:
        self.folder.save_arrays({key: array.numpy() for key, array in arrays.items()})

    def summary(self) -> dict[str, Any]:
        """Return what the run has come to so far."""
        clients = set(self.names.values())
        influence = self.influence.summary(clients, self.rare_sites, 0, 0) if clients else {}
        if isinstance(self.result, AsynchronousResult):
            influence = self.result.influence
        return {
            "seconds": round(self.session.seconds, 1),
            "strategy": self.config.strategy.name,
            "class_names": self.data.card.class_names,
            "rare_labels": self.data.rare_labels,
            "train_images": len(self.data.train_ids),
            "result": self._final_row(influence),
            "time_to_accuracy": {f"{level:.2f}": self._reached(level) for level in MILESTONES},
            "influence": influence,
            "failures": [*map(str, self.clients.failures), *self.failures],
            "provenance": self.session.provenance(),
        }

    def _final_row(self, influence: dict[str, Any]) -> dict[str, Any]:
        """Return the last measures, the means of the last five, and who shaped the model."""
        version = max(self.published)
        row: dict[str, Any] = {"version": version, "time": self.published[version]}
        if self.rows:
            last = pd.DataFrame(self.rows).tail(LAST)
            row |= {
                key: value for key, value in self.rows[-1].items() if not key.startswith("accuracy_class")
            }
            for column in ("accuracy", "rare_accuracy", "common_accuracy"):
                row[f"{column}_last5"] = float(last[column].mean())
        if self.result is not None and (told := self.result.evaluate_metrics_clientapp):
            last_told = told[max(told)]
            row |= {f"client_{key}": last_told[key] for key in (records.ACCURACY, records.LOSS)}
        keys = (
            *("aggregated", "replaced_per_flush", "rare_share_of_clients", "rare_share_of_updates"),
            *("rare_share_of_weight", "participation_bias", "aggregation_bias"),
        )
        return row | {key: influence.get(key) for key in keys}

    def _reached(self, level: float) -> float | None:
        """Return the time at which the accuracy of all labels was first measured at this level or above."""
        return next((row["time"] for row in self.rows if row["accuracy"] >= level), None)

    def _tell(self) -> None:
        if self.rows:
            columns = ("version", "time", "accuracy", "balanced_accuracy", "rare_accuracy", "common_accuracy")
            every = math.ceil(len(self.rows) / 10)
            shown = [*self.rows[:-1:every], self.rows[-1]]
            names = [self.step, *(column.replace("_", " ") for column in columns[1:])]
            logger.log(
                NOTICE, "%s", table_text(names, [[row[column] for column in columns] for row in shown])
            )
        told = self.summary()["influence"]
        shares = [told[f"rare_share_of_{of}"] for of in ("clients", "updates", "weight")]
        if None not in shares:
            logger.log(
                NOTICE,
                "rare labels: at %.0f %% of the clients, in %.0f %% of the updates, %.0f %% of the weight",
                *(100 * np.array(shares)),
            )
        logger.log(NOTICE, "results are in %s", self.folder.path)


def _measures(measures: Measures) -> dict[str, float]:
    return {
        "accuracy": measures.accuracy,
        "balanced_accuracy": measures.balanced_accuracy,
        "rare_accuracy": measures.rare_accuracy,
        "common_accuracy": measures.common_accuracy,
        "macro_f1": measures.macro_f1,
        records.LOSS: measures.loss,
    }
