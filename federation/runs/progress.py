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

NOTICE = 25
"""Level of what a quiet run tells as well: its folder, a line now and then, its results."""


OWN_LINE = "\x1b[m"
"""What a run's own lines begin with where Flower's and Ray's are mixed among them: no colour, so not seen."""


class _StdoutHandler(logging.StreamHandler[TextIO]):
    """Writes to what ``sys.stdout`` is at the time: Flower replaces it when a ServerApp starts."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stdout


class _MarkedLines(logging.Formatter):
    """Puts a mark before every line, also of a message that has several."""

    def __init__(self, mark: str) -> None:
        super().__init__("%(message)s")
        self._mark = mark

    def format(self, record: logging.LogRecord) -> str:
        return "\n".join(self._mark + line for line in super().format(record).split("\n"))


def set_up_logging(quiet: bool = False, mark: str = "") -> logging.Logger:
    """Let the logger ``rarefl`` write plain lines to standard output, from ``NOTICE`` on if ``quiet``.

    A second call changes only what is told. Each line begins with ``mark``, such as :data:`OWN_LINE`.
    """
    if not any(isinstance(handler, _StdoutHandler) for handler in logger.handlers):
        logger.addHandler(_StdoutHandler())
    for handler in logger.handlers:
        if isinstance(handler, _StdoutHandler):
            handler.setFormatter(_MarkedLines(mark))
    logger.setLevel(NOTICE if quiet else logging.INFO)
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
    """Tells after each step of the label rounds how good the model is and about how long the run will take.

    The labels grow by the same number in each label round, and with them the time of a step. So step for step
    label round t is taken to cost 1 + t: as much for what is always the same as for the labels of one label
    round. Steps of an earlier process took none of this one's time.

    Parameters
    ----------
    label_rounds, steps
        Number of label rounds, and of communication rounds or versions in each.
    name
        What a step is called: ``"round"`` or ``"version"``.
    label_round, done
        Label round in which this process begins, and how many of its steps an earlier process had done.
    clock
        Seconds, for tests.
    """

    def __init__(
        self,
        label_rounds: int,
        steps: int,
        name: str = "round",
        label_round: int = 1,
        done: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.label_rounds = label_rounds
        self.steps = steps
        self.name = name
        self._clock = clock
        self._start = self._last = self._label_round_start = clock()
        self._label_round = label_round
        self._first = self._step = done
        self._cost = 0

    def done(
        self, label_round: int, step: int, label_ratio: float, measures: Mapping[str, float | str]
    ) -> None:
        """Log one line on a finished step; quiet runs tell that of a label round's last.

        Parameters
        ----------
        label_round, step
            From 1.
        label_ratio
            Labelled share of the pool, in (0, 1].
        measures
            What else there is to tell, in this order.

        The seconds a step are the mean of this label round, its query included.
        """
        now = self._clock()
        if label_round != self._label_round:
            self._label_round, self._label_round_start = label_round, self._last
            self._first = self._step = 0
        self._cost += (1 + label_round) * (step - self._step)
        self._step, self._last = step, now
        left = (1 + label_round) * (self.steps - step)
        left += sum(self.steps * (1 + later) for later in range(label_round + 1, self.label_rounds + 1))
        parts = _parts(measures)
        if taken := step - self._first:
            parts.append(f"{(now - self._label_round_start) / taken:.1f} s a {self.name}")
        if left and self._cost:
            parts.append(f"about {clock_text((now - self._start) / self._cost * left)} left")
        place = (
            f"label round {label_round}/{self.label_rounds}, {100 * label_ratio:.1f} % labelled, "
            f"{self.name} {step}/{self.steps}"
        )
        logger.log(NOTICE if step == self.steps else logging.INFO, "[%s] %s", place, " | ".join(parts))


class StepProgress:
    """Tells of single steps of one long training, as ``Progress`` does of steps in label rounds.

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
        self._first = self._step = done
        self._clock = clock
        self._start = clock()

    def done(self, step: int, measures: Mapping[str, float | str]) -> None:
        """Log one line on a finished step, from 1; quiet runs tell one in each tenth of the steps."""
        parts = _parts(measures)
        if taken := step - self._first:
            seconds = (self._clock() - self._start) / taken
            parts.append(f"{seconds:.1f} s a {self.name}")
            if left := self.steps - step:
                parts.append(f"about {clock_text(seconds * left)} left")
        new_tenth = 10 * step // self.steps > 10 * self._step // self.steps
        self._step = step
        level = NOTICE if new_tenth else logging.INFO
        logger.log(level, "[%s %d/%d] %s", self.name, step, self.steps, " | ".join(parts))


def _parts(measures: Mapping[str, float | str]) -> list[str]:
    return [f"{name} {_cell(value)}" for name, value in measures.items()]


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
