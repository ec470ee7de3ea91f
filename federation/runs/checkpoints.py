"""Checkpoints of a run: the last two, whole or not at all, of tensors and JSON.

A checkpoint is two files: ``<number>.pt`` with tensors, which ``torch.load(..., weights_only=True)`` reads,
and ``<number>.json`` with everything else and the SHA-256 digests of both. The JSON is written last, so a
checkpoint without it never came to be.
"""

import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import numpy as np
import torch

from federation.errors import RunFolderError
from federation.runs.files import replace_file

logger = logging.getLogger("rarefl")

FORMAT = 2
SHARE = 0.01
"""Share of a run's time that checkpoints may take, beside those that it cannot do without."""

_BEFORE_STATE, _AFTER_STATE = ', "state": ', "}\n"


class Checkpoint(NamedTuple):
    """What a run goes on from: arrays by name, and a dictionary that came from JSON."""

    arrays: dict[str, np.ndarray]
    state: dict[str, Any]


class _DamagedError(Exception):
    """A checkpoint is not what was written."""


class Checkpoints:
    """The checkpoints in one folder, which is made by the first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._last = max(self._numbers(), default=0)
        self._sound: int | None = None

    def save(self, arrays: Mapping[str, np.ndarray], state: Mapping[str, Any]) -> None:
        """Write a checkpoint; the one before is kept, older ones go.

        Values of ``state`` are those of JSON, NumPy's numbers and NaN included.
        """
        self.folder.mkdir(exist_ok=True)
        number = self._last + 1
        tensors = {key: torch.from_numpy(np.array(array, order="C")) for key, array in arrays.items()}
        digest = hashlib.sha256()

        def write_tensors(path: Path) -> None:
            with path.open("wb") as file:
                torch.save(tensors, cast(IO[bytes], _Hashed(file, digest)))

        replace_file(self._path(number, "pt"), write_tensors)
        text = json.dumps(state, default=_plain)
        head = {"format": FORMAT, "arrays": digest.hexdigest(), "digest": _digest(text)}
        whole = json.dumps(head)[:-1] + _BEFORE_STATE + text + _AFTER_STATE
        replace_file(self._path(number, "json"), lambda path: path.write_text(whole, encoding="utf-8"))
        keep = {number, self._sound}
        self._last = self._sound = number
        for path in self.folder.glob("[0-9]*.*"):
            if path.stem.isdecimal() and int(path.stem) not in keep:
                path.unlink()

    def load(self) -> Checkpoint | None:
        """Return the last checkpoint, or with a warning the one before; None if there has been none.

        Raises
        ------
        RunFolderError
            There are checkpoints and all of them are damaged.
        """
        faults = []
        for number in sorted(self._numbers(), reverse=True):
            try:
                checkpoint = self._read(number)
            except _DamagedError as error:
                faults.append(f"{self._path(number, 'json')}: {error}")
                logger.warning("a checkpoint is damaged and left out: %s", faults[-1])
                continue
            self._sound = number
            return checkpoint
        if faults:
            raise RunFolderError(
                "output.resume: every checkpoint is damaged: " + "; ".join(faults) + ". Put one of them back "
                "from a copy, or start a new run"
            )
        return None

    def _read(self, number: int) -> Checkpoint:
        arrays = self._path(number, "pt")
        try:
            head, _, rest = self._path(number, "json").read_text(encoding="utf-8").partition(_BEFORE_STATE)
            told = json.loads(head + "}")
            known, digest, expected = told["format"], told["digest"], told["arrays"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _DamagedError(f"it cannot be read ({type(error).__name__}: {error})") from None
        if known != FORMAT:
            raise RunFolderError(
                f"output.resume: the checkpoints in {self.folder} have format {known!r}, and this version of "
                f"the app goes on from format {FORMAT}. Resume the run with the version that made it "
                "(summary.json names its commit), or start a new run"
            )
        text = rest.removesuffix(_AFTER_STATE)
        if _digest(text) != digest:
            raise _DamagedError("its content is not what was written (SHA-256)")
        try:
            with arrays.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise _DamagedError(f"its tensors in {arrays.name} cannot be read: {error.strerror}") from None
        if found != expected:
            raise _DamagedError(f"its tensors in {arrays.name} are not what was written (SHA-256)")
        tensors: dict[str, torch.Tensor] = torch.load(arrays, weights_only=True)
        return Checkpoint({key: tensor.numpy() for key, tensor in tensors.items()}, json.loads(text))

    def _path(self, number: int, kind: str) -> Path:
        return self.folder / f"{number:06d}.{kind}"

    def _numbers(self) -> list[int]:
        return [int(path.stem) for path in self.folder.glob("*.json") if path.stem.isdecimal()]


class Pace:
    """How often a run can afford a checkpoint.

    The next one is due when those so far took no more than ``share`` of the time since the start, and the
    last one no more than that of the time since its end.

    Attributes
    ----------
    seconds
        What all checkpoints took.
    """

    def __init__(self, share: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.share = SHARE if share is None else share
        self.seconds = 0.0
        self._clock = clock
        self._start = self._end = clock()
        self._took = 0.0

    def due(self) -> bool:
        """Whether a checkpoint can be afforded now."""
        now = self._clock()
        return self._took <= self.share * (now - self._end) and self.seconds <= self.share * (
            now - self._start
        )

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Count the time of the block as that of a checkpoint."""
        began = self._clock()
        try:
            yield
        finally:
            self._end = self._clock()
            self._took = self._end - began
            self.seconds += self._took


class _Hashed:
    """A file that is written, and a digest of what is written."""

    def __init__(self, file: Any, digest: Any) -> None:
        self._file = file
        self._digest = digest

    def write(self, data: Any) -> int:
        self._digest.update(data)
        written: int = self._file.write(data)
        return written

    def flush(self) -> None:
        self._file.flush()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no place in a checkpoint")
