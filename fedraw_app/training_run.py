"""A run of one training with all labels known: what it writes into its folder and says at its end."""

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from flwr.app import ArrayRecord

from datasets.federated import FederatedData
from datasets.randomness import draw_seed
from federation.config.run_config import RunConfig
from federation.evaluation import ServerEvaluation
from federation.measures import shown_measures
from federation.messages.grid import ClientGrid
from federation.messages.hello import Federation
from federation.runs.checkpoints import Checkpoint
from federation.runs.progress import NOTICE, StepProgress, table_text
from federation.runs.provenance import RunBooks
from federation.runs.run_folder import INFLUENCE_PLOT, STALENESS_PLOT, TIME_PLOT, RunFolder
from fedraw_app.options import TrainingSites
from fedraw_app.plots import draw_accuracy, draw_influence, draw_staleness
from fedraw_app.training import Part, Training

logger = logging.getLogger("rarefl")

# Accuracies for which the summary tells when they were reached.
MILESTONES = tuple(round(0.05 * step, 2) for step in range(4, 20))


class TrainingRun:
    """The one training of a run; ``run`` may be called once, the summary can be asked for at any time."""

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
        self.session = RunBooks(config, clients, federation, folder)
        self.evaluation = ServerEvaluation(config, data)
        self.step = "version" if config.strategy.asynchronous else "round"
        sites = TrainingSites(
            names={site.node_id: site.name for site in federation.sites},
            examples={site.name: site.pool_size for site in federation.sites},
            coverage={site.name: site.label_coverage for site in federation.sites},
        )
        part = Part(draw_seed(config.seed, "strategy"), sites, self._tell_step, self._keep)
        self.training = Training(clients, config, data, folder, self.evaluation, part)

    def run(self, checkpoint: Checkpoint | None = None) -> None:
        """Train, from a checkpoint if there is one, and leave tables, plots, model and summary in the folder.

        Raises
        ------
        RunStoppedError, DivergedError
            The training could not go on; its model so far is in the folder.
        """
        done = checkpoint.state["strategy"]["version"] if checkpoint else 0
        self._progress = StepProgress(self.step, self.config.steps, done)
        if checkpoint is not None:
            self.session.restore(checkpoint.state["session"])
        training = self.training
        try:
            result = training.run(checkpoint)
        except BaseException:
            if training.result is not None:
                self._save(training.result.arrays)
            elif training.latest is not None:
                self._save_model(training.latest)
            raise
        self._save(result.arrays)
        if training.rows:
            self.folder.write_confusion(self.evaluation.confusion)
        self.folder.write_summary(self.summary(), "finished")
        self._tell()

    def _keep(self, make: Callable[[], Checkpoint], needed: bool) -> None:
        def with_books() -> Checkpoint:
            arrays, state = make()
            return Checkpoint(arrays, state | {"session": self.session.state()})

        self.folder.checkpoint(with_books, needed)

    def _tell_step(self, step: int, told: Any) -> None:
        self._progress.done(step, told)

    def _save(self, arrays: ArrayRecord) -> None:
        """Write model, tables and plots of what was trained."""
        training = self.training
        if not self.config.clock.timing_only:
            self._save_model(arrays)
        if rows := training.influence_rows():
            self.folder.write_influence(rows)
            self.folder.save_figure(INFLUENCE_PLOT, draw_influence(rows[:-1]))
            self.folder.save_figure(STALENESS_PLOT, draw_staleness(training.influence.staleness))
        if training.rows:
            figure = draw_accuracy(pd.DataFrame(training.rows), self.config.clock.virtual)
            self.folder.save_figure(TIME_PLOT, figure)

    def _save_model(self, arrays: ArrayRecord) -> None:
        self.folder.save_arrays({key: array.numpy() for key, array in arrays.items()})

    def summary(self) -> dict[str, Any]:
        """Return what the run has come to so far."""
        training = self.training
        version = max(training.published)
        place = {"version": version, "time": training.published[version]}
        return {
            "seconds": round(self.session.seconds, 1),
            "strategy": self.config.strategy.name,
            "class_names": self.data.card.class_names,
            "rare_labels": self.data.rare_labels,
            "train_images": len(self.data.train_ids),
            "result": place | training.final_row(),
            "time_to_accuracy": {f"{level:.2f}": reached(training.rows, level) for level in MILESTONES},
            "influence": training.influence_summary(),
            "failures": [*map(str, self.clients.failures), *training.failures],
            "provenance": self.session.provenance(),
        }

    def _tell(self) -> None:
        if rows := self.training.rows:
            columns = ("version", "time", *shown_measures())
            every = math.ceil(len(rows) / 10)
            shown = [*rows[:-1:every], rows[-1]]
            names = [self.step, *(column.replace("_", " ") for column in columns[1:])]
            cells = [[row[column] for column in columns] for row in shown]
            logger.log(NOTICE, "%s", table_text(names, cells))
        told = self.training.influence_summary()
        shares = [told[f"rare_share_of_{of}"] for of in ("clients", "updates", "weight")]
        if None not in shares:
            logger.log(
                NOTICE,
                "rare labels: at %.0f %% of the clients, in %.0f %% of the updates, %.0f %% of the weight",
                *(100 * np.array(shares)),
            )
        logger.log(NOTICE, "results are in %s", self.folder.path)


def reached(rows: Sequence[dict[str, Any]], level: float) -> float | None:
    """Return the time at which the accuracy of all labels was first measured at this level or above."""
    return next((row["time"] for row in rows if row["accuracy"] >= level), None)
