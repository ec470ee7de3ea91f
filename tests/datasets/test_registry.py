"""The data sets by name."""

import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from datasets.base import LoadOptions
from datasets.errors import DataError, DatasetNotFoundError
from datasets.registry import DATASETS, load_dataset, loader


def test_names() -> None:
    assert {
        "digits",
        "fashion-mnist",
        "cifar10",
        "cifar100",
        "emnist-balanced",
        "emnist-letters",
        "octmnist",
        "dermamnist",
        "elpv",
        "ham10000",
        "isic2019",
        "image-folder",
    } == set(DATASETS)


def test_load_by_name() -> None:
    assert load_dataset("digits", LoadOptions(seed=1)).card.name == "digits"
    with pytest.raises(DatasetNotFoundError, match="nowhere"):
        load_dataset("fashion-mnist", LoadOptions(Path("/nowhere")))


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("fashionmnist", "fashion-mnist"),
        ("Digits", "digits"),
        ("CIFAR-100", "cifar100"),
        ("derma", "dermamnist"),
    ],
)
def test_unknown_name_hints_at_the_nearest(name: str, near: str) -> None:
    with pytest.raises(
        DataError, match=f"no data set {name!r}; did you mean '{near}'.*there are digits, fashion-mnist, "
    ):
        load_dataset(name, LoadOptions())


def test_unlike_name_gets_no_hint() -> None:
    with pytest.raises(
        DataError, match=r"no data set 'xyz' \(there are digits, fashion-mnist, .*image-folder\)$"
    ):
        load_dataset("xyz", LoadOptions())


@pytest.mark.parametrize("name", DATASETS)
def test_every_name_says_in_one_line_what_it_is(name: str) -> None:
    assert 20 < len(DATASETS[name].help) <= 70


@pytest.mark.parametrize("name", DATASETS)
def test_every_name_has_a_function(name: str) -> None:
    load = loader(name)
    assert load.__module__.startswith("datasets.sources.")
    with pytest.raises(DataError, match="nowhere") if name != "digits" else nullcontext():
        load(LoadOptions(Path("/nowhere")))


def test_only_what_is_asked_for_is_imported() -> None:
    code = (
        "import sys; from datasets.registry import loader; loader('fashion-mnist'); "
        "print(*({'pandas', 'PIL', 'rich', 'sklearn', 'torchvision', 'medmnist'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == ""
