"""Labels as data sets bring them, and as they leave every loader: int64 in 0..C-1, with class names."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from datasets.errors import DatasetFormatError
from datasets.names import did_you_mean


@dataclass(frozen=True, eq=False)
class Labels:
    """Labels, int64 (N,), in 0..C-1, and the names of the C classes."""

    values: npt.NDArray[np.int64]
    class_names: tuple[str, ...]


@dataclass(frozen=True)
class _Fault:
    """Raises the one error about a label: its file, its position or line, and the way out."""

    where: str
    way_out: str
    first_line: int | None

    def place(self, position: int) -> str:
        return (
            f"at position {position}" if self.first_line is None else f"in line {self.first_line + position}"
        )

    def error(self, found: str, expected: str) -> DatasetFormatError:
        return DatasetFormatError(
            f"{self.where}: found {found}, expected {expected}. {self.way_out}".rstrip()
        )


def unify_labels(
    raw: npt.ArrayLike,
    where: str,
    class_names: Sequence[str] | None = None,
    codes: Sequence[int] | None = None,
    way_out: str = "",
    first_line: int | None = None,
) -> Labels:
    """Return labels in the one form of this package.

    Parameters
    ----------
    raw
        Whole numbers of any type, or class names, (N,) or (N, 1); or one-hot rows, (N, C).
    where
        File in the message of an error.
    class_names
        Names of the classes in label order; ``None`` takes the distinct labels in ascending order as classes.
    codes
        The number by which the data set calls each class, if not 0..C-1, such as 1..C; only with names.
    way_out
        What to do about a wrong label, for the message.
    first_line
        Line of the first label in the file, if that is text: then lines are named, not positions.

    Raises
    ------
    DatasetFormatError
        If a label is missing, is no whole number, no known class or more than one; the message names the
        first such label and where it stands.
    """
    fault = _Fault(where, way_out, first_line)
    array = _as_array(raw, fault)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim == 2:
        columns = array.shape[1]
        array = _from_one_hot(array, class_names, fault)
        class_names = class_names if class_names is not None else [str(column) for column in range(columns)]
        codes = None
    elif array.ndim != 1:
        raise fault.error(f"labels of shape {array.shape}", "one label for each image, (N,) or (N, 1)")
    if array.dtype.kind == "U":
        return _from_names(array, class_names, fault)
    numbers = _whole(array, fault)
    if class_names is None:
        known, values = np.unique(numbers, return_inverse=True)
        return Labels(values.astype(np.int64), tuple(map(str, known.tolist())))
    known = np.arange(len(class_names)) if codes is None else np.asarray(codes)
    values = np.full(len(numbers), -1, dtype=np.int64)
    for label, code in enumerate(known.tolist()):
        values[numbers == code] = label
    if (unknown := np.flatnonzero(values < 0)).size:
        position = int(unknown[0])
        raise fault.error(f"label {numbers[position]} {fault.place(position)}", _numbers_allowed(known))
    return Labels(values, tuple(class_names))


def _as_array(raw: npt.ArrayLike, fault: _Fault) -> npt.NDArray[Any]:
    """Return an array of bools, numbers or text; what a table gives as objects is looked at one by one."""
    try:
        array = np.asarray(raw)
    except ValueError:
        raise fault.error("rows of different lengths", "one label for each image") from None
    if array.dtype.kind == "S":
        return np.char.decode(array, "utf-8")
    if array.dtype.kind in "biufU":
        return array
    if array.dtype.kind == "O":
        values = array.ravel().tolist()
        texts = [isinstance(value, str) for value in values]
        if all(texts):
            return array.astype(np.str_)
        if not any(texts):
            for position, value in enumerate(values):
                if not isinstance(value, (bool, int, float, np.number)):
                    raise fault.error(f"label {value!r} {fault.place(position)}", "a label for each image")
            return np.asarray(values, dtype=np.float64).reshape(array.shape)
        position = texts.index(not texts[0])
        raise fault.error(
            f"label {values[position]!r} {fault.place(position)}", f"labels like the first, {values[0]!r}"
        )
    raise fault.error(f"labels of type {array.dtype}", "whole numbers or class names")


def _from_one_hot(
    rows: npt.NDArray[Any], class_names: Sequence[str] | None, fault: _Fault
) -> npt.NDArray[np.int64]:
    """Return the column of the single 1 of each row."""
    if rows.dtype.kind == "U":
        raise fault.error(
            f"{rows.shape[1]} labels for one image {fault.place(0)}",
            "one label for each image (single-label)",
        )
    if class_names is not None and rows.shape[1] != len(class_names):
        raise fault.error(
            f"labels with {rows.shape[1]} columns",
            f"one column, or one for each of the {len(class_names)} classes",
        )
    if (other := np.argwhere((rows != 0) & (rows != 1))).size:
        position, column = other[0]
        raise fault.error(
            f"{rows[position, column]} in a row of {rows.shape[1]} labels {fault.place(int(position))}",
            "a single 1 among zeros (one-hot)",
        )
    ones = rows.sum(axis=1)
    if (wrong := np.flatnonzero(ones != 1)).size:
        position = int(wrong[0])
        many = f"{int(ones[position])} labels" if ones[position] else "no label"
        raise fault.error(
            f"{many} for one image {fault.place(position)}",
            "one label for each image: multi-label data cannot be used",
        )
    return rows.argmax(axis=1).astype(np.int64)


def _whole(array: npt.NDArray[Any], fault: _Fault) -> npt.NDArray[np.int64]:
    if array.dtype.kind == "f" and (fractional := np.flatnonzero(~(array == np.round(array)))).size:
        position = int(fractional[0])
        raise fault.error(f"label {array[position]} {fault.place(position)}", "whole numbers")
    if array.size and (array.min() < -(2**53) or array.max() > 2**53):
        position = int(np.abs(array.astype(np.float64)).argmax())
        raise fault.error(f"label {array[position]} {fault.place(position)}", "numbers of at most 2**53")
    return array.astype(np.int64)


def _from_names(array: npt.NDArray[np.str_], class_names: Sequence[str] | None, fault: _Fault) -> Labels:
    array = np.char.strip(array)
    if (empty := np.flatnonzero(array == "")).size:
        raise fault.error(f"no label {fault.place(int(empty[0]))}", "a label for each image")
    if class_names is None:
        known, values = np.unique(array, return_inverse=True)
        return Labels(values.astype(np.int64), tuple(known.tolist()))
    index = {name: label for label, name in enumerate(class_names)}
    for position, name in enumerate(array.tolist()):
        if name not in index:
            raise fault.error(
                f"label {name!r} {fault.place(position)}",
                f"one of {', '.join(class_names)}{did_you_mean(name, class_names)}",
            )
    return Labels(np.array([index[name] for name in array.tolist()], dtype=np.int64), tuple(class_names))


def _numbers_allowed(known: npt.NDArray[np.int64]) -> str:
    first, last = int(known[0]), int(known[-1])
    if last - first + 1 == len(known):
        return f"labels {first} to {last}"
    return f"labels {', '.join(map(str, known.tolist()))}"
