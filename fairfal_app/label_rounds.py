"""The server's side of active learning: query, train, measure, and again until the budget is spent."""

import math
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from datasets.federated import FederatedData
from datasets.randomness import draw_seed
from fairfal_app.labels_held import labels_lost
from fairfal_app.learning_curve import LearningCurve, draw_learning_curve
from fairfal_app.options import needs_local_model
from fairfal_app.query.scalars import mean_gamma
from federation import records
from federation.client import array_record, initial_model
from federation.config.run_config import RunConfig
from federation.errors import LabelsLostError
from federation.evaluation import ServerEvaluation
from federation.messages.grid import ClientGrid
from federation.messages.hello import Federation, meet_again
from federation.runs.checkpoints import Checkpoint
from federation.runs.progress import NOTICE, Progress, headline, logger, quiet_flower, table_text
from federation.runs.provenance import Session
from federation.runs.run_folder import CURVE, RunFolder
from fedraw.registry import TrainingStrategy
from fedraw.run.events import Event
from fedraw_app.options import TrainingSites, training_strategy
from learning.measure import Measures


class LabelRounds:
    """One run of federated active learning.

    Parameters
    ----------
    clients
        The grid; its sites are known.
    federation
        The clients and what they told of themselves.
    budget
        Labels that each client asks for in each label round.
    """

    def __init__(
        self,
        clients: ClientGrid,
        config: RunConfig,
        data: FederatedData,
        folder: RunFolder,
        federation: Federation,
        budget: int,
    ) -> None:
        self.clients = clients
        self.config = config
        self.data = data
        self.folder = folder
        self.federation = federation
        self.budget = budget
        self.evaluation = ServerEvaluation(config, data)
        self.gamma_mean: float | None = None
        self.num_labelled: dict[str, int] = {}
        self.coverage: dict[str, list[int]] = {}
        self.failed_jobs: list[str] = []
        self.bought: list[np.ndarray] = []
        self.latest: ArrayRecord | None = None
        self.results: list[dict[str, Any]] = []
        self.rows: list[dict[str, Any]] = []  # of the present label round
        self.session = Session(config, clients, federation, folder)
        # On a wall clock versions are measured in a thread of its own.
        self._measuring = threading.Lock()

    def run(self, checkpoint: Checkpoint | None = None) -> None:
        """Run every label round; after each, the folder holds its model, its measures and its queries.

        With a checkpoint, go on in the label round that it was made in, whose query is done.
        """
        label_rounds = self.config.query.label_rounds
        arrays: ArrayRecord | None = None
        first, done = (1, 0) if checkpoint is None else self._restore(checkpoint.state)
        name = "version" if self.config.strategy.asynchronous else "round"
        progress = Progress(label_rounds, self.config.steps, name, first, done)
        for label_round in range(first, label_rounds + 1):
            if checkpoint is None:
                if not self.query(label_round, arrays):
                    logger.info(
                        "every pool is empty: nothing was left to label in label round %d", label_round
                    )
                    break
                self._keep(label_round, needed=True)
            try:
                arrays = self.train(label_round, progress, checkpoint)
                checkpoint = None
            finally:
                if self.latest is not None:
                    self.folder.save_arrays({key: array.numpy() for key, array in self.latest.items()})
            self.folder.write_confusion(self.evaluation.confusion)
            self.folder.write_summary(self.summary())
        self.folder.save_figure(CURVE, draw_learning_curve(self._curve()))
        self.folder.write_summary(self.summary(), "finished")
        columns = (
            "label_ratio",
            "labelled",
            "accuracy",
            "balanced_accuracy",
            "rare_accuracy",
            "rare_label_share",
        )
        rows = [
            [f"{row['label_ratio']:.1%}", *(row[column] for column in columns[1:])] for row in self.results
        ]
        logger.log(NOTICE, "%s", table_text([column.replace("_", " ") for column in columns], rows))
        logger.log(NOTICE, "results are in %s", self.folder.path)

    def summary(self) -> dict[str, Any]:
        """Return what the run has come to so far."""
        return {
            "seconds": round(self.session.seconds, 1),
            "class_names": self.data.card.class_names,
            "rare_labels": self.data.rare_labels,
            "train_images": len(self.data.train_ids),
            "train_class_counts": np.bincount(
                self.data.train.labels[self.data.train_ids], minlength=self.data.num_classes
            ),
            "budget_per_client": self.budget,
            "gamma_mean": self.gamma_mean,
            "label_rounds": self.results,
            "failures": [*map(str, self.clients.failures), *self.failed_jobs],
            "provenance": self.session.provenance(),
        }

    # Checkpoints -------------------------------------------------------------------------------------------

    def _keep(self, label_round: int, strategy: TrainingStrategy | None = None, needed: bool = False) -> None:
        """Save what the run goes on from, if it is time or ``needed``: after a query, or in a training."""

        def make() -> Checkpoint:
            arrays, training = strategy.state_dict() if strategy else ({}, None)
            state = {
                "label_round": label_round,
                "training": training,
                "rows": self.rows if strategy else [],
                "gamma_mean": self.gamma_mean,
                "num_labelled": self.num_labelled,
                "coverage": self.coverage,
                "failed_jobs": self.failed_jobs,
                "bought": self.bought,
                "results": self.results,
                "session": self.session.state(),
            }
            return Checkpoint(arrays, state)

        with self._measuring:
            self.folder.checkpoint(make, needed)

    def _restore(self, state: Mapping[str, Any]) -> tuple[int, int]:
        """Go back to a state; return its label round, and how many rounds or versions of it are done."""
        self.rows = state["rows"]
        self.gamma_mean = state["gamma_mean"]
        self.failed_jobs = state["failed_jobs"]
        self.bought = [np.array(counts, dtype=np.int64) for counts in state["bought"]]
        self.results = state["results"]
        self.session.restore(state["session"])
        self.num_labelled, self.coverage = state["num_labelled"], state["coverage"]
        training = state["training"]
        return state["label_round"], training["version"] if training else 0

    # Querying ----------------------------------------------------------------------------------------------

    def query(self, label_round: int, arrays: ArrayRecord | None) -> bool:
        """Let every client choose and label its budget, at random in the first label round.

        Returns whether an image was labelled.
        """
        meet_again(self.clients, self.config.nodes.timeout)
        estimates: dict[str, MetricRecord] = {}
        if arrays is not None and needs_local_model(self.config.query):
            estimates = self._ask(records.ESTIMATE, {records.LABEL_ROUND: label_round}, arrays)
            if self.gamma_mean is None:
                # FairFAL averages gamma once, at the first active query, and keeps it for the run.
                gammas = (answer.get(records.GAMMA) for answer in estimates.values())
                self.gamma_mean = mean_gamma([float(gamma) for gamma in gammas if gamma is not None])  # type: ignore[arg-type]
        request: dict[str, int | float] = {records.LABEL_ROUND: label_round, records.BUDGET: self.budget}
        if self.gamma_mean is not None:
            request[records.GAMMA_MEAN] = self.gamma_mean
        selections = self._ask(records.SELECT, request, arrays)
        bought = np.zeros(self.data.num_classes, dtype=np.int64)
        for site, selection in selections.items():
            self._keep_count(site, int(selection[records.NUM_LABELLED]), int(selection[records.BUDGET]))  # type: ignore[arg-type]
            if 0 < int(selection[records.BUDGET]) < self.budget:  # type: ignore[arg-type]
                taken = selection[records.BUDGET]
                logger.info("%s: its last %s images were labelled, its pool is empty", site, taken)
            self.coverage[site] = selection[records.LABEL_COVERAGE]  # type: ignore[assignment]
            counts = selection[records.CLASS_COUNTS]
            bought += np.asarray(counts, dtype=np.int64)
            self.folder.append_query(
                self._query_row(label_round, site, estimates.get(site, MetricRecord()), selection)
            )
        if bought.any():
            self.bought.append(bought)
        return bool(bought.any())

    def _keep_count(self, site: str, count: int, bought: int) -> None:
        known = self.num_labelled.get(site, 0) + bought
        if count < known:
            raise LabelsLostError(labels_lost([(site, count, known)], self.folder.key))
        self.num_labelled[site] = count

    def _ask(
        self, message_type: str, request: Mapping[str, int | float], arrays: ArrayRecord | None
    ) -> dict[str, MetricRecord]:
        """Send one request to every client and return the metrics of the answers by site, in their order."""
        content = RecordDict({records.CONFIG: ConfigRecord({records.RUN: self.folder.key, **request})})
        if arrays is not None:
            content[records.ARRAYS] = arrays
        messages = [Message(content, node_id, message_type) for node_id in self.clients.get_node_ids()]
        replies = self.clients.send_and_receive(messages, timeout=self.config.nodes.reply_timeout)
        return {
            self.clients.site_name(reply.metadata.src_node_id): reply.content.metric_records[records.METRICS]
            for reply in replies
        }

    def _query_row(
        self, label_round: int, site: str, estimate: MetricRecord, selection: MetricRecord
    ) -> dict[str, Any]:
        uses_global = selection.get(records.GLOBAL_MODEL)
        row: dict[str, Any] = {
            "label_round": label_round,
            "site": site,
            "gamma": estimate.get(records.GAMMA),
            "gamma_mean": self.gamma_mean,
            "d": estimate.get(records.DISCREPANCY),
            "s": selection.get(records.MODEL_SCORE),
            "query_model": {None: None, 0: "local", 1: "global"}[uses_global],  # type: ignore[index]
            "budget": selection[records.BUDGET],
            "labelled": selection[records.NUM_LABELLED],
        }
        counts = selection[records.CLASS_COUNTS]
        assert isinstance(counts, list)
        return row | {f"class_{label}": count for label, count in enumerate(counts)}

    # Training ----------------------------------------------------------------------------------------------

    def train(
        self, label_round: int, progress: Progress, checkpoint: Checkpoint | None = None
    ) -> ArrayRecord:
        """Train a fresh model, or go on with that of a checkpoint, on what is labelled; return its arrays."""
        config, rounds = self.config, self.config.steps
        meet_again(self.clients, config.nodes.timeout)
        self.clients.set_participants(
            site.node_id for site in self.clients.sites if self.num_labelled.get(site.name, 0)
        )
        resumed = checkpoint.state["training"] if checkpoint else None
        if resumed is None:
            self.rows = []

        published: dict[int, float] = {}  # times of the versions of an asynchronous training

        def after_round(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
            if server_round == 0:
                return None
            self.latest = arrays
            measures = None
            if self.evaluation.due(server_round):
                measures = self.evaluation(arrays)
                row = self._round_row(label_round, server_round, measures)
                if config.evaluate.clients:
                    row |= self._clients_measures(label_round, server_round, arrays)
                with self._measuring:
                    self.rows.append(row)
                    self.folder.append_round(row)
            told: dict[str, float | str] = {}
            if server_round in published:
                virtual = "virtual time" if config.clock.name == "virtual" else "time"
                told[virtual] = f"{published[server_round]:.1f} s"
            if measures is not None:
                told |= headline(measures)
            progress.done(label_round, server_round, self._label_ratio, told)
            return None

        def take_event(event: Event) -> None:
            if event.kind == "publish":
                published[event.version] = event.time
            elif event.kind == "fail":
                self.failed_jobs.append(
                    f"label round {label_round}, version {event.version}: {event.site} failed: {event.reason}"
                )

        with quiet_flower():
            strategy = training_strategy(
                config,
                self._training_sites(),
                self.data.rare_labels,
                draw_seed(config.seed, "participation", label_round),
                events=take_event,
            )
            strategy.on_step = lambda strategy: self._keep(
                label_round, strategy, needed=strategy.version >= rounds
            )
            if checkpoint is not None and resumed is not None:
                strategy.load_state(checkpoint.arrays, resumed)
            result = strategy.start(
                grid=self.clients,
                initial_arrays=array_record(initial_model(config, self.data, label_round)),
                num_rounds=rounds,
                timeout=config.nodes.reply_timeout,
                train_config=ConfigRecord({records.RUN: self.folder.key, records.LABEL_ROUND: label_round}),
                evaluate_fn=after_round,
            )
        self.clients.set_participants(None)
        self.latest = result.arrays
        # On a wall clock a kill can come between the last version and its measures.
        if not self.rows or self.rows[-1]["round"] < rounds:
            after_round(rounds, result.arrays)
        last = [row["accuracy"] for row in self.rows[-ServerEvaluation.LAST_ROUNDS :]]
        self.results.append(
            self.rows[-1]
            | {
                "accuracy_last5": float(np.mean(last)),
                "rare_label_share": self._rare_label_share(),
                "train_loss": result.train_metrics_clientapp[rounds][records.TRAIN_LOSS],
            }
        )
        return result.arrays

    def _training_sites(self) -> TrainingSites:
        return TrainingSites(
            names={site.node_id: site.name for site in self.clients.sites},
            examples={site: count for site, count in self.num_labelled.items() if count},
            coverage=self.coverage,
        )

    @property
    def _label_ratio(self) -> float:
        """The labelled share of all training images."""
        return sum(self.num_labelled.values()) / len(self.data.train_ids)

    def _round_row(self, label_round: int, server_round: int, measures: Measures) -> dict[str, Any]:
        row: dict[str, Any] = {
            "label_round": label_round,
            "round": server_round,
            "labelled": sum(self.num_labelled.values()),
            "label_ratio": self._label_ratio,
            "accuracy": measures.accuracy,
            "balanced_accuracy": measures.balanced_accuracy,
            "rare_accuracy": measures.rare_accuracy,
            "common_accuracy": measures.common_accuracy,
            "macro_f1": measures.macro_f1,
            "loss": measures.loss,
        }
        return row | {f"accuracy_class_{label}": value for label, value in enumerate(measures.per_class)}

    def _clients_measures(self, label_round: int, server_round: int, arrays: ArrayRecord) -> dict[str, float]:
        """Return the mean accuracy and loss of all clients' own test images, weighted by their number.

        NaN where no client that answered has any.
        """
        request = {records.LABEL_ROUND: label_round, records.SERVER_ROUND: server_round}
        answers = self._ask(records.EVALUATE, request, arrays).values()
        measured = [answer for answer in answers if answer[records.NUM_EXAMPLES]]
        if not measured:
            return {f"client_{key}": math.nan for key in (records.ACCURACY, records.LOSS)}
        weights = [answer[records.NUM_EXAMPLES] for answer in measured]
        return {
            f"client_{key}": float(np.average([answer[key] for answer in measured], weights=weights))
            for key in (records.ACCURACY, records.LOSS)
        }

    def _rare_label_share(self) -> float:
        """Return the share of rare labels among all labels bought so far; NaN where no label is rare."""
        if not self.data.rare_labels:
            return math.nan
        bought = np.sum(self.bought, axis=0)
        return float(bought[list(self.data.rare_labels)].sum() / bought.sum())

    def _curve(self) -> LearningCurve:
        return LearningCurve(
            label_ratios=[row["label_ratio"] for row in self.results],
            accuracy=[row["accuracy"] for row in self.results],
            balanced_accuracy=[row["balanced_accuracy"] for row in self.results],
            rare_accuracy=[row["rare_accuracy"] for row in self.results],
            bought=np.stack(self.bought),
            class_names=self.data.card.class_names,
            rare_labels=self.data.rare_labels,
        )
