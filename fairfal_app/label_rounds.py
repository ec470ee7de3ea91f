"""The server's side of active learning: query, train, measure, and again until the budget is spent."""

import math
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from datasets.federated import FederatedData
from datasets.randomness import draw_seed
from fairfal_app.options import needs_local_model
from fairfal_app.query.scalars import mean_gamma
from federation import records
from federation.client import array_record, initial_model
from federation.config import RunConfig
from federation.errors import LabelsLostError
from federation.evaluation import ServerEvaluation
from federation.grid import ClientGrid
from federation.plots import LearningCurve
from federation.progress import Progress, logger, quiet_flower, table_text
from federation.run_folder import RunFolder
from fedraw_app.options import TrainingSites, training_strategy
from fedraw_app.strategies.events import Event
from learning.measure import Measures


class LabelRounds:
    """One run of federated active learning.

    Parameters
    ----------
    clients
        The grid; its sites are known when ``run`` is called.
    budget
        Labels that each client asks for in each label round.
    """

    def __init__(
        self, clients: ClientGrid, config: RunConfig, data: FederatedData, folder: RunFolder, budget: int
    ) -> None:
        self.clients = clients
        self.config = config
        self.data = data
        self.folder = folder
        self.budget = budget
        self.evaluation = ServerEvaluation(config, data)
        self.gamma_mean: float | None = None
        self.num_labelled: dict[int, int] = {}
        self.coverage: dict[int, list[int]] = {}
        self.failed_jobs: list[str] = []
        self.bought: list[np.ndarray] = []
        self.latest: ArrayRecord | None = None
        self.results: list[dict[str, Any]] = []
        self.started = time.monotonic()

    def run(self) -> None:
        """Run every label round; after each, the folder holds its model, its measures and its queries."""
        label_rounds = self.config.query.label_rounds
        progress = Progress(label_rounds, self.config.steps)
        arrays: ArrayRecord | None = None
        for label_round in range(1, label_rounds + 1):
            if not self.query(label_round, arrays):
                logger.info("every pool is empty: nothing was left to label in label round %d", label_round)
                break
            try:
                arrays = self.train(label_round, progress)
            finally:
                if self.latest is not None:
                    self.folder.save_arrays({key: array.numpy() for key, array in self.latest.items()})
            self.folder.write_confusion(self.evaluation.confusion)
            self.folder.write_summary(self.summary())
        self.folder.save_curve(self._curve())
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
        logger.info("%s", table_text([column.replace("_", " ") for column in columns], rows))
        logger.info("results are in %s", self.folder.path)

    def summary(self) -> dict[str, Any]:
        """Return what the run has come to so far."""
        return {
            "seconds": round(time.monotonic() - self.started, 1),
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
        }

    # Querying ----------------------------------------------------------------------------------------------

    def query(self, label_round: int, arrays: ArrayRecord | None) -> bool:
        """Let every client choose and label its budget, at random in the first label round.

        Returns whether an image was labelled.
        """
        estimates: dict[int, MetricRecord] = {}
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
        for node_id, selection in selections.items():
            self._keep_count(node_id, int(selection[records.NUM_LABELLED]), int(selection[records.BUDGET]))  # type: ignore[arg-type]
            if 0 < int(selection[records.BUDGET]) < self.budget:  # type: ignore[arg-type]
                site, taken = self.clients.site_name(node_id), selection[records.BUDGET]
                logger.info("%s: its last %s images were labelled, its pool is empty", site, taken)
            self.coverage[node_id] = selection[records.LABEL_COVERAGE]  # type: ignore[assignment]
            counts = selection[records.CLASS_COUNTS]
            bought += np.asarray(counts, dtype=np.int64)
            self.folder.append_query(
                self._query_row(label_round, node_id, estimates.get(node_id, MetricRecord()), selection)
            )
        if bought.any():
            self.bought.append(bought)
        return bool(bought.any())

    def _keep_count(self, node_id: int, count: int, bought: int) -> None:
        known = self.num_labelled.get(node_id, 0) + bought
        if count < known:
            raise LabelsLostError(
                f"{self.clients.site_name(node_id)} has {count} labels where {known} are due: its client "
                "lost its state, which a SuperNode keeps in memory only. Start the run again"
            )
        self.num_labelled[node_id] = count

    def _ask(
        self, message_type: str, request: Mapping[str, int | float], arrays: ArrayRecord | None
    ) -> dict[int, MetricRecord]:
        """Send one request to every client and return the metrics of the answers by node, in site order."""
        content = RecordDict({records.CONFIG: ConfigRecord(dict(request))})
        if arrays is not None:
            content[records.ARRAYS] = arrays
        messages = [Message(content, node_id, message_type) for node_id in self.clients.get_node_ids()]
        replies = self.clients.send_and_receive(messages, timeout=self.config.nodes.reply_timeout)
        return {
            reply.metadata.src_node_id: reply.content.metric_records[records.METRICS] for reply in replies
        }

    def _query_row(
        self, label_round: int, node_id: int, estimate: MetricRecord, selection: MetricRecord
    ) -> dict[str, Any]:
        uses_global = selection.get(records.GLOBAL_MODEL)
        row: dict[str, Any] = {
            "label_round": label_round,
            "site": self.clients.site_name(node_id),
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

    def train(self, label_round: int, progress: Progress) -> ArrayRecord:
        """Train a fresh model on what is labelled and return its arrays."""
        config, rounds = self.config, self.config.steps
        labelled_nodes = [
            node_id for node_id in self.clients.get_node_ids() if self.num_labelled.get(node_id, 0)
        ]
        self.clients.set_participants(labelled_nodes)
        rows: list[dict[str, Any]] = []

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
                rows.append(row)
                self.folder.append_round(row)
            progress.round_done(label_round, server_round, _headline(measures))
            return None

        def take_event(event: Event) -> None:
            if event.kind == "fail":
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
            result = strategy.start(
                grid=self.clients,
                initial_arrays=array_record(initial_model(config, self.data, label_round)),
                num_rounds=rounds,
                timeout=config.nodes.reply_timeout,
                train_config=ConfigRecord({records.LABEL_ROUND: label_round}),
                evaluate_fn=after_round,
            )
        self.clients.set_participants(None)
        last = [row["accuracy"] for row in rows[-ServerEvaluation.LAST_ROUNDS :]]
        self.results.append(
            rows[-1]
            | {
                "accuracy_last5": float(np.mean(last)),
                "rare_label_share": self._rare_label_share(),
                "train_loss": result.train_metrics_clientapp[rounds][records.TRAIN_LOSS],
            }
        )
        return result.arrays

    def _training_sites(self) -> TrainingSites:
        names = {site.node_id: site.name for site in self.clients.sites}
        return TrainingSites(
            names=names,
            examples={names[node]: count for node, count in self.num_labelled.items() if count},
            coverage={names[node]: bits for node, bits in self.coverage.items()},
        )

    def _round_row(self, label_round: int, server_round: int, measures: Measures) -> dict[str, Any]:
        labelled = sum(self.num_labelled.values())
        row: dict[str, Any] = {
            "label_round": label_round,
            "round": server_round,
            "labelled": labelled,
            "label_ratio": labelled / len(self.data.train_ids),
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


def _headline(measures: Measures | None) -> dict[str, float]:
    if measures is None:
        return {}
    headline = {"accuracy": measures.accuracy, "balanced": measures.balanced_accuracy}
    if not math.isnan(measures.rare_accuracy):
        headline["rare"] = measures.rare_accuracy
    return headline
