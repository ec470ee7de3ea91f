"""The data sets by name."""

from pathlib import Path

import pytest

from datasets.errors import DataError, DatasetNotFoundError
from datasets.registry import DATASETS, load_dataset


def test_names() -> None:
    assert list(DATASETS) == ["digits", "fashion-mnist"]


def test_load_by_name() -> None:
    assert load_dataset("digits", None, 1).card.name == "digits"
    with pytest.raises(DatasetNotFoundError, match="nowhere"):
        load_dataset("fashion-mnist", Path("/nowhere"), 1)


@pytest.mark.parametrize(
    ("name", "near"),
    [("fashionmnist", "fashion-mnist"), ("Digits", "digits"), ("fashon-mnist", "fashion-mnist")],
)
def test_unknown_name_hints_at_the_nearest(name: str, near: str) -> None:
    with pytest.raises(DataError, match=f"{name!r}; there are digits, fashion-mnist. Did you mean '{near}'"):
        load_dataset(name, None, 1)


def test_unlike_name_gets_no_hint() -> None:
    with pytest.raises(DataError, match=r"'xyz'; there are digits, fashion-mnist\.$"):
        load_dataset("xyz", None, 1)
