"""The folder of one run: its config, tables, final model, plot and summary.

``summary.json`` tells how the run stands; whatever is written at once appears whole or not at all, and every
row of a table is on the disk when the call returns, so that a killed run leaves files that can be read.
"""

import hashlib
import json
import logging
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import tomli_w
import torch
from filelock import BaseFileLock, FileLock, Timeout
from matplotlib.figure import Figure

from federation.errors import RunFolderError
from federation.output_dir import output_path
from federation.plots import LearningCurve, draw_learning_curve

logger = logging.getLogger("rarefl")

Status = Literal["running", "finished", "failed"]

CONFIG, SUMMARY, ROUNDS, QUERIES = "config.toml", "summary.json", "rounds.csv", "queries.csv"
EVENTS, INFLUENCE, CONFUSION = "events.csv", "influence.csv", "confusion.csv"
FINAL_MODEL, CURVE = "final.pt", "curve.png"
TIME_PLOT, INFLUENCE_PLOT, STALENESS_PLOT = "accuracy.png", "influence.png", "staleness.png"
RUN_FILES = (
    *(CONFIG, SUMMARY, ROUNDS, QUERIES, EVENTS, INFLUENCE, CONFUSION, FINAL_MODEL),
    *(CURVE, TIME_PLOT, INFLUENCE_PLOT, STALENESS_PLOT),
)


class RunFolder:
    """An existing, writable folder that belongs to this run; made by ``RunFolder.create``."""

    def __init__(self, path: Path, app: str, label: str, lock: BaseFileLock | None = None) -> None:
        self.path = path
        self._lock = lock
        self.app = app
        self.label = label
        self._columns: dict[str, list[str]] = {}

    @classmethod
    def create(cls, directory: str, app: str, label: str) -> "RunFolder":
        """Make the folder, try that it can be written to, and note that the run has begun.

        Parameters
        ----------
        directory
            Absolute path; a leading ``~`` is the home folder. "" takes a new folder under ``~/rarefl/runs``,
            named by the time and the label. What an unfinished run left there moves to ``earlier-1`` (then
            ``earlier-2``, ...) inside it, so that two runs never share a table.
        app, label
            What ran, for the summary and the default name.

        Raises
        ------
        RunFolderError
            The path is relative, holds a finished run, is in use by another run, or cannot be written.
        """
        path = output_path(directory)
        try:
            lock = _locked(path) if directory else None
            path = _existing(path) if directory else _new_folder(path, label)
            folder = cls(path, app, label, lock)
            folder.write_summary({})
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise RunFolderError(
                f"output.dir: cannot write to {path}: {reason}. Give the path of a folder "
                "that the user who runs the SuperLink may write to"
            ) from error
        return folder

    @contextmanager
    def told_if_failed(self, summary: Callable[[], Mapping[str, Any]]) -> Iterator[None]:
        """Let the summary say that the run failed, and why, when an exception ends the block."""
        try:
            yield
        except BaseException as error:
            reason = f"{type(error).__name__}: {error}"
            try:
                self.write_summary(summary(), "failed", reason)
            except OSError as full:
                logger.error("cannot write the summary: %s", full)
            logger.error("the run failed: %s\nwhat it had is in %s", error, self.path)
            raise
        finally:
            self.release()

    def release(self) -> None:
        """Let another run have the folder."""
        if self._lock is not None:
            self._lock.release()

    def write_config(self, resolved: Mapping[str, Any]) -> None:
        """Write the run config as ``config.toml``, which ``flwr run . --run-config`` takes again.

        ``resolved`` holds tables of plain values (``{"train": {"lr": 0.01}}``).
        """
        self._replace(CONFIG, lambda path: path.write_text(tomli_w.dumps(resolved), encoding="utf-8"))

    def append_round(self, row: Mapping[str, Any]) -> None:
        """Add one row to ``rounds.csv``; see ``_append``."""
        self._append(ROUNDS, row)

    def append_query(self, row: Mapping[str, Any]) -> None:
        """Add one row to ``queries.csv``; see ``_append``."""
        self._append(QUERIES, row)

    def append_events(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows, all with the same columns, to ``events.csv`` in one go; a run has thousands of them."""
        path = self.path / EVENTS
        # Objects keep what they are: a column of whole numbers and gaps does not become one of floats.
        text = pd.DataFrame(rows, dtype=object).to_csv(
            header=not path.exists(), index=False, lineterminator="\n"
        )
        _append_text(path, text)

    def write_influence(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write ``influence.csv``, a row a site."""
        frame = pd.DataFrame(rows)
        self._replace(INFLUENCE, lambda path: frame.to_csv(path, index=False, lineterminator="\n"))

    def write_confusion(self, counts: np.ndarray) -> None:
        """Write ``confusion.csv``, a row a true label and a column ``class_0``, ... a predicted one.

        ``counts`` are test images of the final model, (C, C).
        """
        frame = pd.DataFrame(counts, columns=[f"class_{label}" for label in range(len(counts))])
        frame.insert(0, "label", range(len(counts)))
        self._replace(CONFUSION, lambda path: frame.to_csv(path, index=False, lineterminator="\n"))

    def write_summary(self, summary: Mapping[str, Any], status: Status = "running", reason: str = "") -> None:
        """Write ``summary.json``: app, label, status, the reason of a failure, and what ``summary`` holds.

        NaN and infinities become null, since JSON has neither.
        """
        head = {"app": self.app, "label": self.label, "status": status, "reason": reason}
        text = json.dumps(_plain(head | dict(summary)), indent=2, allow_nan=False)
        self._replace(SUMMARY, lambda path: path.write_text(text + "\n", encoding="utf-8"))

    def save_arrays(self, arrays: Mapping[str, np.ndarray], name: str = FINAL_MODEL) -> None:
        """Save arrays as a file of tensors that ``torch.load(..., weights_only=True)`` reads."""
        tensors = {key: torch.from_numpy(np.array(array, order="C")) for key, array in arrays.items()}
        self._replace(name, lambda path: torch.save(tensors, path))

    def save_curve(self, curve: LearningCurve) -> None:
        """Draw the learning curve as ``curve.png``."""
        self.save_figure(CURVE, draw_learning_curve(curve))

    def save_figure(self, name: str, figure: Figure) -> None:
        """Save a figure as a PNG file."""
        self._replace(name, lambda path: figure.savefig(path, format="png", dpi=150))

    def _append(self, name: str, row: Mapping[str, Any]) -> None:
        """Add a row to a table. The columns keep the order in which they first came; a row may lack some."""
        path = self.path / name
        columns = self._columns.setdefault(name, _header(path))
        new = [column for column in row if column not in columns]
        columns += new
        frame = pd.DataFrame([dict(row)], columns=columns)
        if new and path.exists():
            # Cells stay the text that they are: a whole number in a column with gaps must not become 3.0.
            earlier = pd.read_csv(path, dtype=str, keep_default_na=False)
            frame = pd.concat([earlier, frame.astype(object)]).reindex(columns=columns)
        if new:
            self._replace(name, lambda temporary: frame.to_csv(temporary, index=False, lineterminator="\n"))
            return
        _append_text(path, frame.to_csv(header=False, index=False, lineterminator="\n"))

    def _replace(self, name: str, write: Callable[[Path], object]) -> None:
        """Let ``write`` fill a temporary file, and put it in the place of ``name`` when it is whole."""
        temporary = self.path / f".{name}.tmp"
        try:
            write(temporary)
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            os.replace(temporary, self.path / name)
        finally:
            with suppress(FileNotFoundError):
                temporary.unlink()


def _append_text(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _header(table: Path) -> list[str]:
    return list(pd.read_csv(table, nrows=0).columns) if table.exists() else []


def _new_folder(parent: Path, label: str) -> Path:
    """Make a folder named by the time and the label; runs that start in the same second get numbers."""
    parent.mkdir(parents=True, exist_ok=True)
    name = f"{datetime.now():%Y%m%d-%H%M%S}-{label}"
    number = 1
    while True:
        path = parent / (name if number == 1 else f"{name}-{number}")
        with suppress(FileExistsError):
            path.mkdir()
            return path
        number += 1


def _locked(path: Path) -> BaseFileLock:
    """Return the lock of a folder, held by this process; it lies outside, so that the folder stays clean."""
    digest = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]
    lock = FileLock(Path(tempfile.gettempdir()) / f"rarefl-{digest}.lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise RunFolderError(f"output.dir: another run is writing to {path}; give another folder") from None
    return lock


def _existing(path: Path) -> Path:
    """Make the folder if there is none, and clear an unfinished run out of the way."""
    path.mkdir(parents=True, exist_ok=True)
    if _status(path / SUMMARY) == "finished":
        raise RunFolderError(
            f"output.dir: {path} already holds a finished run. Give another folder, or move that one away"
        )
    leftovers = [path / name for name in RUN_FILES if (path / name).exists()]
    if leftovers:
        number = 1
        while (earlier := path / f"earlier-{number}").exists():
            number += 1
        earlier.mkdir()
        for leftover in leftovers:
            leftover.rename(earlier / leftover.name)
    return path


def _status(summary: Path) -> str | None:
    try:
        return str(json.loads(summary.read_text(encoding="utf-8"))["status"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _plain(value: Any) -> Any:
    """Return a value of the kinds that JSON knows."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Path):
        return str(value)
    return value
