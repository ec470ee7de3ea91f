"""FedBuff: buffered asynchronous aggregation (arXiv 2106.06639)."""

from typing import ClassVar

from fedraw.strategies.asynchronous import AsynchronousStrategy


class FedBuff(AsynchronousStrategy):
    """Makes a version of every full buffer, with stale updates damped.

    Uniform weights times ``(1 + tau)^-0.5``; a client can be in the buffer more than once. Takes the settings
    of ``AsynchronousStrategy``.
    """

    paper: ClassVar[str] = "arXiv 2106.06639"
