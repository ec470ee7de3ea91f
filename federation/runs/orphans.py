"""The end of a ServerApp whose SuperLink is gone.

Nothing that it would still do reaches anybody, and it would keep its run's folder locked for ever: Flower
asks it to end, but a ServerApp that waits for its clients or for Ray does not hear of it.
"""

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil

logger = logging.getLogger("rarefl")

POLL = 1.0
"""Seconds between two looks at the processes that started this one."""

_SUPEREXEC, _OWNER = "flower-superexec", "--parent-pid"


def starters() -> list[psutil.Process]:
    """Return the processes of Flower without which this one has nothing to do; none outside of a ServerApp.

    They are the SuperExec that started this process, and the SuperLink which that one belongs to. A
    SuperExec that somebody started apart (``flower-superlink --isolation process``) belongs to none, so that
    a ServerApp there outlives its SuperLink and meets the next one.
    """
    try:
        parent = psutil.Process().parent()
        words = parent.cmdline() if parent else []
        if parent is None or not any(Path(word).stem == _SUPEREXEC for word in words):
            return []
        owner = words[words.index(_OWNER) + 1] if _OWNER in words[:-1] else ""
        return [parent, psutil.Process(int(owner))] if owner.isdecimal() else [parent]
    except psutil.Error:
        return []


@contextlib.contextmanager
def ended_with(processes: Sequence[psutil.Process], tell: Callable[[str], None]) -> Iterator[None]:
    """End this process as soon as one of others has ended while the block runs.

    ``tell`` is called before with the reason, in a thread of its own.
    """
    over = threading.Event()

    def watch() -> None:
        while not over.wait(POLL):
            if gone := [process.pid for process in processes if not _alive(process)]:
                _end(f"the SuperLink ended under it (process {gone[0]} of Flower is gone)", tell)

    if processes:
        threading.Thread(target=watch, name="orphan-watch", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _alive(process: psutil.Process) -> bool:
    # A killed process stays as a zombie where nobody asks how it ended.
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _end(reason: str, tell: Callable[[str], None]) -> None:
    try:
        tell(reason)
        logger.error("the run ends: %s", reason)
        sys.stdout.flush()
    finally:
        os._exit(1)
