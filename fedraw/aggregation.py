"""The arithmetic of a flush: pure functions of weights and arrays."""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from fedraw.arrays import restore_dtype
from fedraw.errors import WeightError

Normalisation = Literal["entries", "buffer", "weights"]
Arrays = dict[str, np.ndarray]

# Elements that are summed at a time: a slice of every update stays in the processor's cache.
SLICE = 32_768


def normalised(weights: np.ndarray) -> np.ndarray:
    """Return weights that sum to 1; all zero becomes uniform, for a buffer must mean something.

    Raises
    ------
    WeightError
        A weight is negative or not finite.
    """
    weights = np.asarray(weights, dtype=np.float64)
    if not np.all(np.isfinite(weights)) or np.any(weights < 0):
        raise WeightError(f"weights of a buffer are {weights.tolist()}; they must be finite and not negative")
    largest = weights.max()
    if largest == 0:
        return np.full(len(weights), 1.0 / len(weights))
    scaled = weights / largest
    result: np.ndarray = scaled / scaled.sum()
    return result


def coefficients(
    weights: np.ndarray, factors: np.ndarray, normalise: Normalisation, buffer_size: int
) -> np.ndarray:
    """Return what each update is multiplied with, (k,), from its weight p and its staleness factor s.

    ``entries`` (default): p normalised over the k updates, times s, so that a flush of fresh updates is
    FedAvg and staleness damps. ``buffer``: divided by the buffer size instead of k (FedBuff, arXiv
    2106.06639), so that a smaller flush takes a smaller step. ``weights``: p s normalised, so that only the
    staleness relative to the others counts.
    """
    shares = normalised(weights)
    if normalise == "buffer":
        return shares * factors * (len(shares) / buffer_size)
    if normalise == "weights":
        total = float((shares * factors).sum())
        return shares * factors / total if total > 0 else np.zeros(len(shares))
    return shares * factors


def wide(dtype: np.dtype) -> np.dtype:
    """Return the dtype to accumulate in: float32 or wider."""
    return np.result_type(dtype, np.float32)


def weighted_sum(factors: Sequence[float] | np.ndarray, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Return the sum of ``factor * array``, in float32 or wider, summed in the order given."""
    dtype = wide(arrays[0].dtype)
    total = np.zeros(arrays[0].shape, dtype)
    flat = total.reshape(-1)
    flats = [array.reshape(-1) for array in arrays]
    scratch = np.empty(min(SLICE, flat.size), dtype)
    for start in range(0, flat.size, SLICE):
        part = flat[start : start + SLICE]
        product = scratch[: part.size]
        for factor, values in zip(factors, flats, strict=True):
            np.multiply(values[start : start + SLICE], dtype.type(factor), out=product)
            part += product
    return total


def add_scaled(current: np.ndarray, step: np.ndarray, server_lr: float) -> np.ndarray:
    """Return ``current + server_lr * step`` in the dtype of ``current``."""
    return restore_dtype(current + step * step.dtype.type(server_lr), current.dtype)


def mix_buffers(
    current: Mapping[str, np.ndarray],
    values: Sequence[Mapping[str, np.ndarray]],
    factors: np.ndarray,
    server_lr: float,
) -> Arrays:
    """Return the new values of the buffers, which no gradient moved.

    Floating ones are a convex mix, ``b <- (1 - m) b + m sum p_i b_i`` with ``m = min(1, server_lr sum f)``
    and p the factors f normalised: a running variance stays positive. Integers and booleans take the maximum.
    """
    total = float(factors.sum())
    if total <= 0:
        return dict(current)
    mixing = min(1.0, server_lr * total)
    result = {}
    for key, value in current.items():
        theirs = [entry[key] for entry in values]
        if np.issubdtype(value.dtype, np.floating):
            mean = weighted_sum(factors / total, theirs)
            dtype = mean.dtype.type
            result[key] = restore_dtype(value * dtype(1.0 - mixing) + mean * dtype(mixing), value.dtype)
        else:
            result[key] = np.asarray(np.maximum.reduce([value, *theirs]), value.dtype)
    return result
