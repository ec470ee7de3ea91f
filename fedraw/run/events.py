"""The log of a run: one record of each thing that happened, in order, without a measured second in it."""

from collections.abc import Callable
from typing import Any, NamedTuple


class Event(NamedTuple):
    """One thing that happened.

    ``kind`` is one of

    * ``dispatch``: ``version`` was sent to ``site`` as its job number ``job``;
    * ``arrive``: an update on ``version`` came in, ``staleness`` versions old, and has a place in the buffer;
    * ``replace``: an update lost its place to another one of the same site, or was averaged into it;
    * ``drop``: an update was not taken, for ``reason``;
    * ``fail``: a job failed, for ``reason``;
    * ``aggregate``: an update became part of ``version`` with ``weight``, its share times its staleness
      factor;
    * ``publish``: ``version`` is there;
    * ``leave``: at the end, an update was left in a part-filled buffer;
    * ``abandon``: at the end, a job was in flight.
    """

    time: float
    kind: str
    site: str
    job: int | None
    version: int
    staleness: int | None = None
    weight: float | None = None
    reason: str = ""


EventSink = list[Any] | Callable[[Event], None]


def as_callback(sink: EventSink | None) -> Callable[[Event], None]:
    """Return a function that takes events, of a list, a function or nothing."""
    if sink is None:
        return lambda event: None
    return sink.append if isinstance(sink, list) else sink
