"""FedBuff: buffered asynchronous aggregation (arXiv 2106.06639)."""

from fedraw.strategies.asynchronous import AsynchronousStrategy


class FedBuff(AsynchronousStrategy):
    """Uniform weights, damped by ``(1 + tau)^-0.5``; a client can be in the buffer more than once.

    Takes the settings of ``AsynchronousStrategy``.
    """
