"""Arrays in messages: how they are read, which of a model's are buffers, and how they keep their dtype."""

import math
from collections.abc import Collection

import numpy as np
from flwr.app import Array, ArrayRecord

NUMPY_MAGIC = b"\x93NUMPY"

BUFFER_ENDINGS = ("running_mean", "running_var", "num_batches_tracked")


def read_array(array: Array) -> np.ndarray:
    """Return a read-only view of the data of Flower's array.

    ``Array.numpy()`` copies, and NumPy reads the header with Python's parser, which on CPython 3.11 fails now
    and then with a SystemError while another thread parses too, such as one that evaluates a version.

    Raises
    ------
    TypeError, ValueError
        The data are no NumPy array of the array's dtype and shape.
    """
    if array.stype != "numpy.ndarray":
        raise TypeError(f"serialised as '{array.stype}', not as a NumPy array")
    data, dtype = array.data, np.dtype(array.dtype)
    width = 2 if data[6:7] == b"\x01" else 4
    start = 8 + width
    end = start + int.from_bytes(data[8:start], "little")
    header = data[start:end]
    count = math.prod(array.shape)
    described = f"'descr': '{dtype.str}'".encode() in header
    if data[:6] != NUMPY_MAGIC or not described or len(data) - end != count * dtype.itemsize:
        raise ValueError(f"the data are no NumPy array of dtype {dtype} and shape {array.shape}")
    flat = np.frombuffer(data, dtype, count, end)
    return flat.reshape(array.shape, order="F" if b"'fortran_order': True" in header else "C")


class ReplyArray(Array):
    """An array of a client, for code of Flower's that calls ``numpy()``: it is read by ``read_array``."""

    def numpy(self) -> np.ndarray:
        """Return a read-only view of the data."""
        return read_array(self)


def readable(record: ArrayRecord) -> ArrayRecord:
    """Return a record of the same data whose arrays were read once, and are read in the same way again.

    Raises
    ------
    ValueError
        An array cannot be read; the error names it.
    """
    result = {}
    for key, array in record.items():
        result[key] = ReplyArray(array.dtype, array.shape, array.stype, array.data)
        try:
            read_array(result[key])
        except (TypeError, ValueError) as error:
            raise ValueError(f"the array '{key}' cannot be read: {error}") from error
    return ArrayRecord(result)


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
