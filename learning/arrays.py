"""A model's state as NumPy arrays: trainable weights, running statistics and counters by name."""

from collections.abc import Mapping

import numpy as np
import torch

from learning.errors import ArrayMismatchError
from learning.models import ImageClassifier


def to_arrays(model: ImageClassifier) -> dict[str, np.ndarray]:
    """Return copies of every entry of the model's state, in C order; counters are int64 of shape ()."""
    return {name: np.array(value.cpu().numpy(), order="C") for name, value in model.state_dict().items()}


def load_arrays(model: ImageClassifier, arrays: Mapping[str, np.ndarray]) -> None:
    """Set every entry of the model's state from arrays with the same names and shapes.

    Entries keep their types: floats for an integer entry, such as an averaged counter, are rounded to the
    nearest one. On an error the model is unchanged.

    Raises
    ------
    ArrayMismatchError
        If names differ, or an array has another shape, no numbers, or no finite number for an integer entry.
    """
    state = model.state_dict()
    missing = [name for name in state if name not in arrays]
    unknown = [name for name in arrays if name not in state]
    if missing or unknown:
        problem = f"{missing[0]!r} is missing" if missing else f"{unknown[0]!r} is not an entry of the model"
        raise ArrayMismatchError(
            f"the arrays do not belong to this model: {problem} ({len(missing)} missing, "
            f"{len(unknown)} unknown, {len(state)} expected); both sides must use the same model, number of "
            "channels and number of classes"
        )
    converted = {name: _converted(name, arrays[name], entry) for name, entry in state.items()}
    with torch.no_grad():
        for name, entry in state.items():
            entry.copy_(converted[name])


def _converted(name: str, array: np.ndarray, entry: torch.Tensor) -> torch.Tensor:
    """Return the array as a tensor of the entry's type."""
    shape = tuple(entry.shape)
    if array.shape != shape:
        raise ArrayMismatchError(f"array {name!r} has shape {array.shape}, the model's entry {shape}")
    if array.dtype.kind not in "fiu":
        raise ArrayMismatchError(f"array {name!r} has type {array.dtype}; numbers are allowed")
    if not entry.is_floating_point() and array.dtype.kind == "f":
        if not np.isfinite(array).all():
            raise ArrayMismatchError(f"array {name!r} counts and must be finite, got {array}")
        array = np.rint(array)
    return torch.from_numpy(np.asarray(array).astype(entry.cpu().numpy().dtype))
