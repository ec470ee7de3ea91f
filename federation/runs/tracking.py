"""TensorBoard events of a run: the numbers of its tables, its plots, and its settings with what came of them.

Events are written from rows as they stand in the run folder's tables, and when a run goes on they are written
anew from those tables. So they never hold what a checkpoint has undone.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from time import time
from typing import Any

import numpy as np
from PIL import Image

from federation.config.run_config import RunConfig, flatten
from federation.errors import ConfigError
from federation.measures import PER_CLASS

# Columns of rounds.csv that say where a row belongs.
_PLACES = ("label_round", "round", "version", "time")
# Columns of queries.csv with a number for each site.
_OF_SITES = ("gamma", "d", "s", "labelled")


def check_tensorboard() -> None:
    """Raise ConfigError where TensorBoard cannot be imported."""
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"output.tensorboard = true needs the package tensorboard ({error}): install it with "
            '`pip install -e ".[tensorboard]"` in the folder of this app where the SuperLink runs, or leave '
            "output.tensorboard = false"
        ) from None


class Tracking:
    """The TensorBoard events of one run, in one file after the other in ``folder``.

    The horizontal axis is the round or version, counted through all label rounds, or the label round; for
    tables with a time, TensorBoard's axis "relative" is that time.

    Parameters
    ----------
    folder
        Made if there is none; events that are there are removed.
    config
        The run config.

    Raises
    ------
    ConfigError
        The package tensorboard is missing.
    """

    def __init__(self, folder: Path, config: RunConfig) -> None:
        check_tensorboard()
        from torch.utils.tensorboard import SummaryWriter

        self._config = config
        self._begun = time()
        self._label_round = 0  # of the last event
        self._staleness: list[float] = []
        self._lost: Counter[str] = Counter()
        folder.mkdir(exist_ok=True)
        for file in folder.glob("events.out.tfevents.*"):
            file.unlink()
        # A TensorBoard that shows the run at this moment drops what it has of it.
        self._writer = SummaryWriter(str(folder), purge_step=0)

    def add_round(self, row: Mapping[str, Any]) -> None:
        """Take a row of ``rounds.csv``; the last of a label round is told by label rounds, too."""
        measures = {column: value for column, value in row.items() if column not in _PLACES}
        label_round = int(row.get("label_round", 0))
        if label_round:
            step = self._step(label_round, row["round"])
            if row["round"] == self._config.steps:
                for column, value in measures.items():
                    if not column.startswith(PER_CLASS):
                        self._scalar(f"label_rounds/{column}", value, label_round)
        else:
            step = int(row["version"])
        for column, value in measures.items():
            label = column.removeprefix(PER_CLASS)
            tag = f"measures/{column}" if label == column else f"class_accuracy/{label}"
            self._scalar(tag, value, step, row.get("time"))
        self._writer.flush()

    def add_query(self, row: Mapping[str, Any]) -> None:
        """Take a row of ``queries.csv``: what a site's query found; its model is 1 if global, 0 if local."""
        step = int(row["label_round"])
        for column in _OF_SITES:
            self._scalar(f"{column}/{row['site']}", row[column], step)
        model = {"local": 0.0, "global": 1.0}.get(row["query_model"])
        self._scalar(f"global_model/{row['site']}", model, step)
        self._writer.flush()

    def add_events(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Take rows of ``events.csv`` in their order: staleness and fate of updates, version by version."""
        if not self._config.strategy.asynchronous:
            return
        for row in rows:
            kind, label_round = row["kind"], int(row.get("label_round", 0))
            if label_round != self._label_round:
                self._label_round = label_round
                self._staleness, self._lost = [], Counter()
            if kind == "aggregate":
                self._staleness.append(row["staleness"])
            elif kind in ("replace", "drop", "fail"):
                self._lost[kind] += 1
            elif kind == "publish":
                told = {
                    "staleness": float(np.mean(self._staleness)) if self._staleness else None,
                    "aggregated": len(self._staleness),
                    "replaced": self._lost["replace"],
                    "dropped": self._lost["drop"],
                    "failed": self._lost["fail"],
                }
                # Each label round has a clock of its own, which begins at 0.
                step, seconds = self._step(label_round, row["version"]), None if label_round else row["time"]
                for name, value in told.items():
                    self._scalar(f"updates/{name}", value, step, seconds)
                self._staleness, self._lost = [], Counter()

    def add_picture(self, file: Path) -> None:
        """Take a plot of the run, a PNG file."""
        with Image.open(file) as picture:
            pixels = np.asarray(picture.convert("RGB"))
        self._writer.add_image(f"plots/{file.stem}", pixels, dataformats="HWC")

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write the settings of a finished run with its last measures, which its summary holds."""
        last = summary["result"] if "result" in summary else summary["label_rounds"][-1]
        measures = {
            f"final/{column}": float(value)
            for column, value in last.items()
            if _is_number(value) and column not in _PLACES and not column.startswith(PER_CLASS)
        }
        settings = flatten({**self._config.resolved(), "output": {}})
        # In a second file: TensorBoard goes on to it when it has read the first.
        self._writer.flush()
        self._writer.add_hparams(settings, measures, run_name=".", global_step=0)

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()

    def _step(self, label_round: int, step: int) -> int:
        """Return a round or version counted through all label rounds; ``label_round`` is 0 without them."""
        return max(label_round - 1, 0) * self._config.steps + int(step)

    def _scalar(self, tag: str, value: Any, step: int, seconds: float | None = None) -> None:
        if _is_number(value):
            self._writer.add_scalar(
                tag, float(value), step, walltime=None if seconds is None else self._begun + seconds
            )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and math.isfinite(value)
