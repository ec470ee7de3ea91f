"""The server's side of active learning: query, train, measure, and again until the budget is spent."""

import logging
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, MetricRecord

from datasets.budget import label_rounds as count_label_rounds
from datasets.federated import FederatedData
from datasets.randomness import draw_seed
from fairfal_app.config import FairFALConfig
from fairfal_app.labels_held import labels_lost
from fairfal_app.learning_curve import LearningCurve, draw_learning_curve
from fairfal_app.options import needs_local_model
from fairfal_app.query.scalars import mean_gamma
from federation import records
from federation.errors import LabelsLostError
from federation.evaluation import ServerEvaluation
from federation.measures import curve_measures
from federation.messages.asking import TRIES, Participation, ask
from federation.messages.grid import ClientGrid
from federation.messages.hello import Federation, meet_again
from federation.runs.checkpoints import Checkpoint
from federation.runs.participation import participation_line
from federation.runs.progress import NOTICE, Progress, table_text
from federation.runs.provenance import RunBooks
from federation.runs.run_folder import CURVE, INFLUENCE_PLOT, STALENESS_PLOT, RunFolder
from fedraw_app.options import TrainingSites
from fedraw_app.plots import draw_influence, draw_staleness
from fedraw_app.training import Part, Training

logger = logging.getLogger("rarefl")


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
        config: FairFALConfig,
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
        self.session = RunBooks(config, clients, federation, folder)
        self.participation = Participation()
        self.gamma_mean: float | None = None
        self.num_labelled: dict[str, int] = {}
        self.coverage: dict[str, list[int]] = {}
        self.bought: list[np.ndarray] = []
        self.results: list[dict[str, Any]] = []
        self.influence: list[dict[str, Any]] = []  # rows of the label rounds that are done
        self.failed_jobs: list[str] = []
        self.training: Training | None = None  # of the present label round

    def run(self, checkpoint: Checkpoint | None = None) -> None:
        """Run every label round; after each, the folder holds its model, its measures and its queries.

        With a checkpoint, go on in the label round that it was made in, whose query is done.
        """
        query, pool_sizes = self.config.query, [len(pool) for pool in self.data.pools]
        label_rounds = count_label_rounds(query.label_ratio, query.last_label_ratio, pool_sizes)
        if label_rounds < query.label_rounds:
            logger.log(
                NOTICE,
                "%d label rounds in place of %d: at the least budget, 1 label a client, more would pass "
                "query.last-label-ratio = %g",
                *(label_rounds, query.label_rounds, query.last_label_ratio),
            )
        arrays: ArrayRecord | None = None
        first, done = (1, 0) if checkpoint is None else self._restore(checkpoint.state)
        name = "version" if self.config.strategy.asynchronous else "round"
        self._progress = Progress(label_rounds, self.config.steps, name, first, done)
        for label_round in range(first, label_rounds + 1):
            if checkpoint is None:
                if not self.query(label_round, arrays):
                    logger.info(
                        "every pool is empty: nothing was left to label in label round %d", label_round
                    )
                    break
                self._keep(label_round, None, needed=True)
            arrays = self.train(label_round, checkpoint)
            checkpoint = None
            self.folder.write_confusion(self.evaluation.confusion)
            self.folder.write_summary(self.summary())
        self._draw()
        self.folder.write_summary(self.summary(), "finished")
        self._tell()

    def _draw(self) -> None:
        """Draw the learning curve, and who shaped the last label round's model."""
        self.folder.save_figure(CURVE, draw_learning_curve(self._curve()))
        if self.training is not None and (rows := self.training.influence_rows()):
            self.folder.save_figure(INFLUENCE_PLOT, draw_influence(rows[:-1]))
            self.folder.save_figure(STALENESS_PLOT, draw_staleness(self.training.influence.staleness))

    def _tell(self) -> None:
        columns = ["label_ratio", "labelled", *curve_measures(), "rare_label_share"]
        rows = [
            [f"{row['label_ratio']:.1%}", *(row[column] for column in columns[1:])] for row in self.results
        ]
        logger.log(NOTICE, "%s", table_text([column.replace("_", " ") for column in columns], rows))
        if line := participation_line(self.participation.state()):
            logger.log(NOTICE, "%s", line)
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
            "participation": self.participation.state(),
            "failures": [*map(str, self.clients.failures), *self._failed_jobs()],
            "provenance": self.session.provenance(),
        }

    def _failed_jobs(self) -> list[str]:
        present = self.training.failures if self.training else []
        return [*self.failed_jobs, *present]

    # Checkpoints -------------------------------------------------------------------------------------------

    def _keep(self, label_round: int, training: Callable[[], Checkpoint] | None, needed: bool) -> None:
        """Save what the run goes on from, if it is time or ``needed``: after a query, or in a training."""

        def make() -> Checkpoint:
            arrays, state = training() if training else ({}, None)
            return Checkpoint(
                arrays,
                {
                    "label_round": label_round,
                    "training": state,
                    "gamma_mean": self.gamma_mean,
                    "num_labelled": self.num_labelled,
                    "coverage": self.coverage,
                    "failed_jobs": self.failed_jobs,
                    "bought": self.bought,
                    "results": self.results,
                    "influence": self.influence,
                    "participation": self.participation.state(),
                    "session": self.session.state(),
                },
            )

        self.folder.checkpoint(make, needed)

    def _restore(self, state: Mapping[str, Any]) -> tuple[int, int]:
        """Go back to a state; return its label round, and how many rounds or versions of it are done."""
        self.gamma_mean = state["gamma_mean"]
        self.failed_jobs = state["failed_jobs"]
        self.bought = [np.array(counts, dtype=np.int64) for counts in state["bought"]]
        self.results, self.influence = state["results"], state["influence"]
        self.participation = Participation(**state["participation"])
        self.session.restore(state["session"])
        self.num_labelled, self.coverage = state["num_labelled"], state["coverage"]
        training = state["training"]
        return state["label_round"], training["strategy"]["version"] if training else 0

    # Querying ----------------------------------------------------------------------------------------------

    def query(self, label_round: int, arrays: ArrayRecord | None) -> bool:
        """Let every client choose and label its budget, at random in the first label round.

        Returns whether an image was labelled.
        """
        meet_again(self.clients, self.config.nodes.timeout)
        estimates: dict[str, MetricRecord] = {}
        if arrays is not None and needs_local_model(self.config.query):
            estimates = self._ask(records.ESTIMATE, label_round, {}, arrays)
            if self.gamma_mean is None:
                # FairFAL averages gamma once, at the first active query, and keeps it for the run.
                gammas = (answer.get(records.GAMMA) for answer in estimates.values())
                self.gamma_mean = mean_gamma([float(gamma) for gamma in gammas if gamma is not None])  # type: ignore[arg-type]
        request: dict[str, int | float] = {records.BUDGET: self.budget}
        if self.gamma_mean is not None:
            request[records.GAMMA_MEAN] = self.gamma_mean
        selections = self._ask(records.SELECT, label_round, request, arrays)
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
        self, kind: str, label_round: int, request: Mapping[str, int | float], arrays: ArrayRecord | None
    ) -> dict[str, MetricRecord]:
        """Ask every client, a few times where it fails, and return the answers by site, in their order."""
        request = {records.LABEL_ROUND: label_round, **request}
        nodes = self.config.nodes
        answers, reasons = ask(self.clients, kind, request, arrays, nodes.reply_timeout, TRIES, nodes.timeout)
        self.participation.count(label_round, kind, answers, reasons)
        for site in (site for site, answer in answers.items() if answer is None):
            logger.log(
                NOTICE, "%s is left out of %s in label round %d: %s", site, kind, label_round, reasons[site]
            )
        return {site: answer for site, answer in answers.items() if answer is not None}

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

    def train(self, label_round: int, checkpoint: Checkpoint | None = None) -> ArrayRecord:
        """Train a fresh model, or go on with that of a checkpoint, on what is labelled; return its arrays."""
        meet_again(self.clients, self.config.nodes.timeout)
        self.clients.set_participants(
            site.node_id for site in self.clients.sites if self.num_labelled.get(site.name, 0)
        )
        labelled = sum(self.num_labelled.values())
        label_ratio = labelled / len(self.data.train_ids)
        part = Part(
            seed=draw_seed(self.config.seed, "participation", label_round),
            sites=self._training_sites(),
            tell=lambda step, told: self._progress.done(label_round, step, label_ratio, told),
            keep=lambda make, needed: self._keep(label_round, make, needed),
            label_round=label_round,
            columns={"labelled": labelled, "label_ratio": label_ratio},
        )
        training = Training(self.clients, self.config, self.data, self.folder, self.evaluation, part)
        self.training = training
        begun = None
        if checkpoint is not None and checkpoint.state["training"] is not None:
            begun = Checkpoint(checkpoint.arrays, checkpoint.state["training"])
        try:
            result = training.run(begun)
        finally:
            if training.latest is not None:
                self.folder.save_arrays({key: array.numpy() for key, array in training.latest.items()})
            if rows := [*self.influence, *training.influence_rows()]:
                self.folder.write_influence(rows)
        self.clients.set_participants(None)
        self.influence += training.influence_rows()
        self.failed_jobs += training.failures
        training.failures = []
        last_metrics = result.train_metrics_clientapp.get(self.config.steps, MetricRecord())
        self.results.append(
            training.final_row()
            | {
                "rare_label_share": self._rare_label_share(),
                "train_loss": last_metrics.get(records.TRAIN_LOSS, math.nan),
            }
        )
        return result.arrays

    def _training_sites(self) -> TrainingSites:
        return TrainingSites(
            names={site.node_id: site.name for site in self.clients.sites},
            examples={site: count for site, count in self.num_labelled.items() if count},
            coverage=self.coverage,
        )

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
