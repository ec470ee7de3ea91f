"""Which arrays of a model are buffers, and how arrays keep their dtype."""

from collections.abc import Collection

import numpy as np

BUFFER_ENDINGS = ("running_mean", "running_var", "num_batches_tracked")


def is_buffer(key: str, buffer_keys: Collection[str] | None) -> bool:
    """Tell whether an array is state that no gradient moved, such as batch-norm statistics.

    ``buffer_keys`` are the buffers of the model; None means that they are not known, and then the names that
    batch normalisation gives its buffers count.
    """
    return key.endswith(BUFFER_ENDINGS) if buffer_keys is None else key in buffer_keys


def restore_dtype(value: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return ``value`` in ``dtype``; integers and booleans are rounded to the nearest first."""
    value = np.asarray(value)
    if value.dtype == dtype:
        return value
    return np.asarray(value if np.issubdtype(dtype, np.inexact) else np.rint(value)).astype(dtype)
