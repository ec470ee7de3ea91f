"""How far the decoding of many images has come: a bar on a terminal, a line now and then in a log."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

logger = logging.getLogger("rarefl")

_LINE_EVERY = 30.0  # seconds


@contextmanager
def decoding_progress(
    source: str, total: int, console: Console | None = None, clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[], None]]:
    """Give a function to call after each image.

    Parameters
    ----------
    source
        Name of the data set.
    console
        Where a bar is drawn if it is a terminal; standard error by default. Elsewhere the logger ``rarefl``
        tells every 30 seconds.
    clock
        Seconds, for tests.
    """
    console = console or Console(stderr=True)
    if console.is_terminal:
        columns = (
            TextColumn(f"{source}: decoding images"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task("", total=total)
            yield lambda: bar.advance(task)
        return
    begin = told = clock()
    done = 0

    def count() -> None:
        nonlocal done, told
        done += 1
        now = clock()
        if now - told >= _LINE_EVERY and done < total:
            told = now
            left = (now - begin) / done * (total - done)
            logger.info("%s: %d of %d images decoded, about %.0f s left", source, done, total, left)

    yield count
