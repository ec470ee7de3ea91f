"""The folder of one run: its config, tables, checkpoints, final model, plot and summary.

``summary.json`` tells how the run stands; whatever is written at once appears whole or not at all, and every
row of a table is on the disk when the call returns, so that a killed run leaves files that can be read.
"""

import json
import logging
import math
import secrets
import threading
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import tomli_w
import torch
from filelock import BaseFileLock
from matplotlib.figure import Figure

from federation.config.run_config import RunConfig
from federation.errors import DivergedError, RunFolderError
from federation.runs.checkpoints import Checkpoint, Checkpoints, Pace
from federation.runs.csv_file import CsvTable
from federation.runs.files import replace_file
from federation.runs.folders import DEFAULT_PARENT, absolute_path, cannot_write, locked, new_folder
from federation.runs.orphans import ended_with, starters
from federation.runs.tracking import Tracking

logger = logging.getLogger("rarefl")

Status = Literal["running", "finished", "failed", "diverged"]

CONFIG, SUMMARY, ROUNDS, QUERIES = "config.toml", "summary.json", "rounds.csv", "queries.csv"
EVENTS, INFLUENCE, CONFUSION = "events.csv", "influence.csv", "confusion.csv"
FINAL_MODEL, CURVE = "final.pt", "curve.png"
TIME_PLOT, INFLUENCE_PLOT, STALENESS_PLOT = "accuracy.png", "influence.png", "staleness.png"
CHECKPOINTS = "checkpoint"
TENSORBOARD = "tensorboard"
RUN_KEY = "run.json"  # in the folder of the checkpoints
TABLES = (ROUNDS, QUERIES, EVENTS)
RUN_FILES = (
    *(CONFIG, SUMMARY, ROUNDS, QUERIES, EVENTS, INFLUENCE, CONFUSION, FINAL_MODEL, CHECKPOINTS),
    *(CURVE, TIME_PLOT, INFLUENCE_PLOT, STALENESS_PLOT, TENSORBOARD),
)


class RunFolder:
    """An existing, writable folder that belongs to this run; made by ``create``, opened again by ``reopen``.

    Attributes
    ----------
    key
        Random name of the run, by which its clients find what they keep of it.
    told
        What the summary held last.
    """

    def __init__(
        self, path: Path, app: str, label: str, key: str = "", lock: BaseFileLock | None = None
    ) -> None:
        self.path = path
        self.app = app
        self.label = label
        self.key = key
        self._lock = lock
        self._tables = {name: CsvTable(path / name) for name in TABLES}
        self.told: dict[str, Any] = {}
        self._telling = threading.RLock()
        self._checkpoints = Checkpoints(path / CHECKPOINTS)
        self._pace = Pace()
        self._tracking: Tracking | None = None

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
        path = absolute_path("output.dir", directory or DEFAULT_PARENT)
        try:
            lock = locked("output.dir", path) if directory else None
            path = _existing(path) if directory else new_folder(path, label)
            folder = cls(path, app, label, secrets.token_hex(8), lock or locked("output.dir", path))
            (path / CHECKPOINTS).mkdir()
            key = json.dumps({"key": folder.key})
            replace_file(path / CHECKPOINTS / RUN_KEY, lambda file: file.write_text(key, encoding="utf-8"))
            folder.write_summary({})
        except (OSError, ValueError) as error:
            raise cannot_write("output.dir", path, error) from error
        return folder

    @classmethod
    def reopen(cls, directory: str, app: str, label: str) -> "RunFolder":
        """Open the folder of a run that is to go on; nothing in it changes.

        Raises
        ------
        RunFolderError
            The path is relative or holds no run, or another run is writing to it.
        """
        path = absolute_path("output.resume", directory)
        file = path / CHECKPOINTS / RUN_KEY
        try:
            key = json.loads(file.read_text(encoding="utf-8"))["key"]
            if not isinstance(key, str) or not key.isalnum():
                raise ValueError(f"key = {key!r}")
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
            raise RunFolderError(
                f"output.resume: {path} holds no run that can go on: {file} cannot be read ({reason}). Give "
                "the folder that the run told at its start ('results go to ...')"
            ) from None
        folder = cls(path, app, label, key, locked("output.resume", path))
        folder.told = _summary(path / SUMMARY)
        return folder

    @property
    def stored_config(self) -> dict[str, Any]:
        """The config with which the run was started, in tables; raises RunFolderError."""
        try:
            return tomllib.loads((self.path / CONFIG).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RunFolderError(
                f"{self.path / CONFIG} cannot be read: {error}. Put the file of the run back, or start a "
                "new run"
            ) from None

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return self.told.get("status") == "finished"

    # Checkpoints -------------------------------------------------------------------------------------------

    def checkpoint(self, make: Callable[[], Checkpoint], needed: bool = False) -> None:
        """Save what the run goes on from, with the tables as they are, if the last one is long enough ago.

        Parameters
        ----------
        make
            Gives the checkpoint when it is to be made; every row that belongs to it is in its table then.
        needed
            Save in any case.
        """
        if not needed and not self._pace.due():
            return
        with self._pace.taken():
            arrays, state = make()
            tables = {name: table.state() for name, table in self._tables.items()}
            self._checkpoints.save(arrays, {"tables": tables, "run": state})

    @property
    def checkpoint_seconds(self) -> float:
        """What all checkpoints of this process took."""
        return self._pace.seconds

    def load_checkpoint(self) -> Checkpoint | None:
        """Return the last sound checkpoint, None before the first, and cut the tables back to it.

        Raises
        ------
        RunFolderError
            Every checkpoint is damaged, or a table lacks rows that the checkpoint knows.
        """
        found = self._checkpoints.load()
        tables = found.state["tables"] if found else {}
        for name, table in self._tables.items():
            table.cut(**tables.get(name, {"columns": [], "rows": 0}))
        return Checkpoint(found.arrays, found.state["run"]) if found else None

    # Files -------------------------------------------------------------------------------------------------

    @contextmanager
    def told_if_failed(self, summary: Callable[[], Mapping[str, Any]]) -> Iterator[None]:
        """Let the summary say that the run failed or diverged, and why, when an exception ends the block.

        When the SuperLink ends under the block, its process says so in the summary and ends, too.
        """
        try:
            with ended_with(starters(), self._leave):
                yield
        except BaseException as error:
            reason = f"{type(error).__name__}: {error}"
            status: Status = error.status if isinstance(error, DivergedError) else "failed"
            try:
                self.write_summary(summary() or self.told, status, reason)
            except OSError as full:
                logger.error("cannot write the summary: %s", full)
            logger.error("the run failed: %s\nwhat it had is in %s", error, self.path)
            raise
        finally:
            self.release()

    def _leave(self, reason: str) -> None:
        with self._telling:
            if not self.finished:
                # Stopped, not failed: whoever ends a SuperLink, by Ctrl-C or by accident, can go on.
                self.write_summary(self.told, "running", reason)

    def track(self, config: RunConfig) -> None:
        """Write what the tables hold, and what will come to the folder, as TensorBoard events as well.

        Raises
        ------
        ConfigError
            The package tensorboard is missing.
        """
        tracking = Tracking(self.path / TENSORBOARD, config)
        for row in self._tables[ROUNDS].read():
            tracking.add_round(row)
        for row in self._tables[QUERIES].read():
            tracking.add_query(row)
        tracking.add_events(self._tables[EVENTS].read())
        self._tracking = tracking

    def release(self) -> None:
        """Let another run have the folder."""
        if self._tracking is not None:
            self._tracking.close()
        if self._lock is not None:
            self._lock.release()

    def write_config(self, resolved: Mapping[str, Any]) -> None:
        """Write the run config as ``config.toml``, which ``flwr run . --run-config`` takes again.

        ``resolved`` holds tables of plain values (``{"train": {"lr": 0.01}}``).
        """
        self._replace(CONFIG, lambda path: path.write_text(tomli_w.dumps(resolved), encoding="utf-8"))

    def append_round(self, row: Mapping[str, Any]) -> None:
        """Add one row to ``rounds.csv``; it may have new columns, or lack some."""
        self._tables[ROUNDS].append([row])
        if self._tracking is not None:
            self._tracking.add_round(row)

    def append_query(self, row: Mapping[str, Any]) -> None:
        """Add one row to ``queries.csv``; it may have new columns, or lack some."""
        self._tables[QUERIES].append([row])
        if self._tracking is not None:
            self._tracking.add_query(row)

    def append_events(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows to ``events.csv`` in one go; a run has thousands of them."""
        self._tables[EVENTS].append(rows)
        if self._tracking is not None:
            self._tracking.add_events(rows)

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
        with self._telling:
            self.told = _plain(head | dict(summary) | head)
            text = json.dumps(self.told, indent=2, allow_nan=False)
            self._replace(SUMMARY, lambda path: path.write_text(text + "\n", encoding="utf-8"))
        if self._tracking is not None and status == "finished":
            self._tracking.finish(self.told)

    def save_arrays(self, arrays: Mapping[str, np.ndarray], name: str = FINAL_MODEL) -> None:
        """Save arrays as a file of tensors that ``torch.load(..., weights_only=True)`` reads."""
        tensors = {key: torch.from_numpy(np.array(array, order="C")) for key, array in arrays.items()}
        self._replace(name, lambda path: torch.save(tensors, path))

    def save_figure(self, name: str, figure: Figure) -> None:
        """Save a figure as a PNG file."""
        self._replace(name, lambda path: figure.savefig(path, format="png", dpi=150))
        if self._tracking is not None:
            self._tracking.add_picture(self.path / name)

    def _replace(self, name: str, write: Callable[[Path], object]) -> None:
        replace_file(self.path / name, write)


def _existing(path: Path) -> Path:
    """Make the folder if there is none, and clear an unfinished run out of the way."""
    path.mkdir(parents=True, exist_ok=True)
    if _summary(path / SUMMARY).get("status") == "finished":
        raise RunFolderError(
            f"output.dir: {path} already holds a finished run. Give another folder, or move that one away; "
            "to make it longer, give it as output.resume"
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


def _summary(file: Path) -> dict[str, Any]:
    """Return what a summary holds; nothing where there is none or only the half of one."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


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
