"""What a run says while it goes on: one plain line a round, and a table at the end.

The server's output reaches `flwr run --stream` through a pipe, in batches, so nothing here redraws a line.
"""

import io
import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table

logger = logging.getLogger("rarefl")


class _StdoutHandler(logging.StreamHandler[TextIO]):
    """Writes to what ``sys.stdout`` is at the time: Flower replaces it when a ServerApp starts."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stdout


def set_up_logging() -> logging.Logger:
    """Let the logger ``rarefl`` write plain lines to standard output; a second call changes nothing."""
    if not any(isinstance(handler, _StdoutHandler) for handler in logger.handlers):
        handler = _StdoutHandler()
        handler.setFormatter(logging.Formatter("%(message)s"))
        logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    return logger


@contextmanager
def quiet_flower() -> Iterator[None]:
    """Let Flower's logger tell only errors in the block: ``ClientGrid`` tells what clients fail at.

    Asynchronous strategies talk to the grid themselves, so their warnings stay.
    """
    loggers = [logging.getLogger("flwr"), logging.getLogger("flwr.fedraw")]
    levels = [each.level for each in loggers]
    loggers[0].setLevel(max(levels[0], logging.ERROR))
    loggers[1].setLevel(logging.WARNING)
    try:
        yield
    finally:
        for each, level in zip(loggers, levels, strict=True):
            each.setLevel(level)


def clock_text(seconds: float) -> str:
    """Return ``m:ss``, or ``h:mm:ss`` from an hour on."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class Progress:
    """Tells after each round how good the model is and about how long the run will take.

    Parameters
    ----------
    label_rounds, rounds
        Number of label rounds, and of communication rounds in each.
    clock
        Seconds, for tests.
    """

    def __init__(self, label_rounds: int, rounds: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.label_rounds = label_rounds
        self.rounds = rounds
        self._clock = clock
        self._start = clock()
        self._told = 0

    def round_done(
        self, label_round: int, server_round: int, measures: Mapping[str, float] | None = None
    ) -> None:
        """Log one line on a finished round; both numbers count from 1.

        The seconds a round are the mean since the start, queries included, so that they and the time left
        agree.
        """
        self._told += 1
        seconds = (self._clock() - self._start) / self._told
        left = (self.label_rounds - label_round) * self.rounds + self.rounds - server_round
        place = f"[label round {label_round}/{self.label_rounds}, round {server_round}/{self.rounds}]"
        parts = [f"{name} {_cell(value)}" for name, value in (measures or {}).items()]
        parts.append(f"{seconds:.1f} s a round")
        if left:
            parts.append(f"about {clock_text(seconds * left)} left")
        logger.info("%s %s", place, " | ".join(parts))


class StepProgress:
    """Tells of single steps of one long training, as ``Progress`` does of rounds in label rounds.

    Parameters
    ----------
    name
        What a step is called: ``"round"`` or ``"version"``.
    steps
        How many there will be.
    done
        How many an earlier process had done.
    clock
        Seconds, for tests.
    """

    def __init__(
        self, name: str, steps: int, done: int = 0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name = name
        self.steps = steps
        self._done = done
        self._clock = clock
        self._start = clock()

    def done(self, step: int, measures: Mapping[str, float]) -> None:
        """Log one line on a finished step, from 1."""
        seconds = (self._clock() - self._start) / max(1, step - self._done)
        parts = [f"{name} {_cell(value)}" for name, value in measures.items()]
        if left := self.steps - step:
            parts.append(f"about {clock_text(seconds * left)} left")
        logger.info("[%s %d/%d] %s", self.name, step, self.steps, " | ".join(parts))


def table_text(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table of plain characters; the first column is text, the others are numbers.

    Floats get three decimals, and NaN a dash.
    """
    table = Table(box=box.MARKDOWN)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    console = Console(file=io.StringIO(), width=10_000, color_system=None, markup=False, highlight=False)
    with console.capture() as capture:
        console.print(table)
    return "\n".join(line.rstrip() for line in capture.get().splitlines() if line.strip())


def _cell(value: object) -> str:
    if isinstance(value, float):
        return "-" if value != value else f"{value:.3f}"
    return str(value)
