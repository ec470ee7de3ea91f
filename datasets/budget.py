"""How many labels each client may ask for, in exact arithmetic (FairFAL, arXiv 2603.10341).

Ratios are taken as the decimal numbers that were written, so that 0.1 + 0.05 is 0.15.
"""

from collections.abc import Sequence
from fractions import Fraction

from datasets.errors import PartitionError

_SMALL = 1000  # rounding to hundreds would distort the budget of fewer images


def budget_per_client(label_ratio: float, pool_total: int, clients: int) -> int:
    """Return the labels a client asks for in each label round.

    It is floor(ratio * N / K) with N, the images of all clients together, rounded to hundreds (half to even);
    below 1,000 images N is not rounded and the budget is at least 1.

    Raises
    ------
    PartitionError
        If the ratio is outside (0, 1] or so small that the budget is 0.
    """
    ratio = _ratio("label-ratio", label_ratio)
    counted = _counted(pool_total)
    budget = int(ratio * counted / clients)
    if budget == 0 and pool_total >= _SMALL:
        raise PartitionError(
            f"label-ratio {label_ratio} of {pool_total} images gives less than one label to each of "
            f"{clients} clients; raise label-ratio to {clients / counted:.2g} or more."
        )
    return max(1, budget)


def most_label_rounds(label_ratio: float, last: float) -> int:
    """Return the number of label rounds t = 1, 2, ... with t * label_ratio <= last, whatever the data.

    Raises
    ------
    PartitionError
        If a ratio is outside (0, 1], or the last one is below the first.
    """
    ratio, end = _ratio("label-ratio", label_ratio), _ratio("last-label-ratio", last)
    if end < ratio:
        raise PartitionError(
            f"last-label-ratio {last} is below label-ratio {label_ratio}: no label round fits."
        )
    return int(end / ratio)


def label_rounds(label_ratio: float, last: float, pool_sizes: Sequence[int]) -> int:
    """Return the number of label rounds of a run: those of :func:`most_label_rounds` that ``last`` allows.

    After the last of them, at most ``last`` of N images are labelled, with N counted as for the budget. Where
    the budget is the least one, 1 label a client, that can be fewer rounds; the first one always takes place.

    Parameters
    ----------
    pool_sizes
        Images of each client, (K,); one that has fewer than the rounds ask for is labelled whole.

    Raises
    ------
    PartitionError
        As :func:`budget_per_client` and :func:`most_label_rounds`.
    """
    total = sum(pool_sizes)
    rounds = most_label_rounds(label_ratio, last)
    budget = budget_per_client(label_ratio, total, len(pool_sizes))
    allowed = _ratio("last-label-ratio", last) * _counted(total)
    while rounds > 1 and sum(min(rounds * budget, size) for size in pool_sizes) > allowed:
        rounds -= 1
    return rounds


def _counted(pool_total: int) -> int:
    """Return N as the protocol counts it: from 1,000 images on rounded to hundreds, half to even."""
    return pool_total if pool_total < _SMALL else round(Fraction(pool_total, 100)) * 100


def _ratio(key: str, value: float) -> Fraction:
    """Return the decimal number that ``value`` prints as."""
    if not 0 < value <= 1:
        raise PartitionError(f"{key} is {value}; it must be above 0 and at most 1.")
    return Fraction(str(value))
