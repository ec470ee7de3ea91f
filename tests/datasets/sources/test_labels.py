"""Labels: one form leaves, whatever comes in."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from datasets.errors import DatasetFormatError
from datasets.sources.labels import unify_labels

NAMES = ("akiec", "mel", "nv")


@pytest.mark.parametrize(
    "raw",
    [
        [2, 0, 1],
        np.array([2, 0, 1], dtype=np.uint8),
        np.array([[2], [0], [1]], dtype=np.int16),
        np.array([2.0, 0.0, 1.0], dtype=np.float32),
        np.array([[0, 0, 1], [1, 0, 0], [0, 1, 0]], dtype=np.uint8),
        np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]),
        np.array([[False, False, True], [True, False, False], [False, True, False]]),
        ["nv", "akiec", " mel"],
        [["nv"], ["akiec"], ["mel"]],
        np.array([b"nv", b"akiec", b"mel"]),
        pd.Series(["nv", "akiec", "mel"], dtype=object),
        pd.Series([2, 0, 1], dtype=object),
    ],
)
def test_any_form_gives_the_same_labels(raw: Any) -> None:
    labels = unify_labels(raw, "labels.csv", NAMES)
    assert labels.values.dtype == np.int64
    assert labels.values.tolist() == [2, 0, 1]
    assert labels.class_names == NAMES


@pytest.mark.parametrize(("codes", "raw"), [((1, 2, 3), [3, 1, 2]), ((10, 30, 20), [20.0, 10.0, 30.0])])
def test_codes_are_the_data_sets_own_numbers(codes: tuple[int, ...], raw: list[float]) -> None:
    assert unify_labels(raw, "labels", NAMES, codes).values.tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    ("raw", "values", "names"),
    [
        ([3, 1, 2, 1], [2, 0, 1, 0], ("1", "2", "3")),
        ([70, -5, 9], [2, 0, 1], ("-5", "9", "70")),
        (["nv", "mel", "nv"], [1, 0, 1], ("mel", "nv")),
        ([[0, 0, 1], [1, 0, 0]], [2, 0], ("0", "1", "2")),
        ([True, False], [1, 0], ("0", "1")),
    ],
)
def test_without_names_the_labels_there_are_become_classes(
    raw: Any, values: list[int], names: tuple[str, ...]
) -> None:
    labels = unify_labels(raw, "labels")
    assert labels.values.tolist() == values
    assert labels.values.dtype == np.int64
    assert labels.class_names == names


@pytest.mark.parametrize(
    ("raw", "found", "expected"),
    [
        ([0, 1, 3, 4], "label 3 at position 2", "labels 0 to 2"),
        ([0, -1], "label -1 at position 1", "labels 0 to 2"),
        ([0, 1.5], "label 1.5 at position 1", "whole numbers"),
        ([0.0, np.nan], "label nan at position 1", "whole numbers"),
        ([0.0, np.inf], "label inf at position 1", "numbers of at most 2**53"),
        (np.array([0, 2**64 - 1], dtype=np.uint64), f"label {2**64 - 1} at position 1", "at most 2**53"),
        ([[0, 0, 1], [1, 0, 1]], "2 labels for one image at position 1", "multi-label data cannot be used"),
        ([[0, 1, 0], [0, 0, 0]], "no label for one image at position 1", "one label for each image"),
        ([[0, 1, 0], [0.3, 0.7, 0]], "0.3 in a row of 3 labels at position 1", "one-hot"),
        ([[0, 1], [1, 0]], "labels with 2 columns", "one for each of the 3 classes"),
        ([["nv", "mel"]], "2 labels for one image at position 0", "single-label"),
        (np.zeros((2, 3, 1)), "labels of shape (2, 3, 1)", "(N,) or (N, 1)"),
        (5, "labels of shape ()", "(N,) or (N, 1)"),
        ([[1], [1, 2]], "rows of different lengths", "one label for each image"),
        (["nv", "mell"], "label 'mell' at position 1", "akiec, mel, nv (did you mean 'mel'?)"),
        (["nv", ""], "no label at position 1", "a label for each image"),
        (pd.Series(["nv", None], dtype=object), "label None at position 1", "labels like the first, 'nv'"),
        (pd.Series(["nv", np.nan], dtype=object), "label nan at position 1", "labels like the first, 'nv'"),
        (np.array([1, None], dtype=object), "label None at position 1", "a label for each image"),
        (np.array(["2020-01-01"], dtype="datetime64[D]"), "labels of type datetime64[D]", "class names"),
    ],
)
def test_wrong_labels_are_named_with_their_place(raw: Any, found: str, expected: str) -> None:
    with pytest.raises(DatasetFormatError) as failure:
        unify_labels(raw, "set.npz", NAMES, way_out="Get it again.")
    message = str(failure.value)
    assert message.startswith(f"set.npz: found {found}, expected ")
    assert expected in message
    assert message.endswith(". Get it again.")


def test_a_text_file_is_named_with_its_line() -> None:
    with pytest.raises(DatasetFormatError, match=r"^t\.csv: found label 'x' in line 3, expected .*nv\.$"):
        unify_labels(["nv", "x"], "t.csv", NAMES, first_line=2)


def test_codes_with_gaps_are_listed() -> None:
    with pytest.raises(DatasetFormatError, match="found label 0 at position 1, expected labels 1, 2, 5"):
        unify_labels([5, 0], "file", NAMES, codes=(1, 2, 5))


@given(arrays.arrays(np.int64, st.integers(0, 20), elements=st.integers(-(2**40), 2**40)))
def test_labels_without_names_can_be_turned_back(raw: np.ndarray) -> None:
    labels = unify_labels(raw, "file")
    assert [int(labels.class_names[label]) for label in labels.values] == raw.tolist()
    assert set(labels.values.tolist()) == set(range(len(labels.class_names)))
