"""Federated data: the whole way from files to pools."""

import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from datasets.base import LoadOptions
from datasets.errors import DatasetNotFoundError, PartitionError
from datasets.federated import DataSpec, FederatedData, federate, rare_labels
from datasets.registry import load_dataset

SPEC = DataSpec("digits", "", 5, "dirichlet", 0.3, "exponential", 10.0, 1)


def all_ids(data: FederatedData) -> list[np.ndarray]:
    return [data.train_ids, *data.pools, *data.test_pools]


def fresh(spec: DataSpec) -> FederatedData:
    federate.cache_clear()
    return federate(spec)


def test_pools_hold_the_long_tail_and_nothing_else() -> None:
    data = federate(SPEC)
    assert sorted(np.concatenate(data.pools).tolist()) == sorted(data.train_ids.tolist())
    assert sorted(np.concatenate(data.test_pools).tolist()) == list(range(360))
    sizes = [len(pool) for pool in data.pools]
    assert max(sizes) - min(sizes) <= 1
    totals = np.sum([data.class_counts(client) for client in range(5)], axis=0)
    assert totals.tolist() == [142, 111, 86, 66, 51, 39, 30, 23, 18, 14]
    assert data.rare_labels == (7, 8, 9)
    assert data.num_classes == 10


@pytest.mark.parametrize("name", ["dirichlet", "iid"])
@pytest.mark.parametrize("long_tail", ["exponential", "step", "none"])
def test_same_id_is_the_same_image_for_training_and_query(name: str, long_tail: str) -> None:
    data = federate(replace(SPEC, partition=name, long_tail=long_tail))
    published = load_dataset("digits", LoadOptions(seed=SPEC.seed))
    for client, pool in enumerate(data.pools):
        assert torch.equal(data.train.images[pool], published.train.images[pool])
        assert np.array_equal(data.train.labels[pool], published.train.labels[pool])
        histogram = np.bincount(published.train.labels[pool], minlength=10)
        assert data.class_counts(client).tolist() == histogram.tolist()
    for pool in data.test_pools:
        assert torch.equal(data.test.images[pool], published.test.images[pool])


def test_pools_are_not_sorted_by_class() -> None:
    data = federate(replace(SPEC, alpha=100.0))
    assert (np.diff(data.train.labels[data.train_ids]) >= 0).all()
    for pool in data.pools:
        assert (np.diff(data.train.labels[pool]) < 0).sum() > len(pool) / 4


def test_data_are_read_once_per_spec() -> None:
    assert federate(SPEC) is federate(replace(SPEC))


def test_everything_is_a_function_of_the_spec() -> None:
    first, again, other = fresh(SPEC), fresh(SPEC), fresh(replace(SPEC, seed=2))
    assert all(np.array_equal(a, b) for a, b in zip(all_ids(first), all_ids(again), strict=True))
    assert torch.equal(first.train.images, again.train.images)
    assert not any(np.array_equal(a, b) for a, b in zip(all_ids(first), all_ids(other), strict=True))


def test_another_process_sees_the_same_data() -> None:
    code = (
        "from datasets.federated import *\n"
        f"data = federate({SPEC!r})\n"
        "print([ids.tolist() for ids in (data.train_ids, *data.pools, *data.test_pools)])"
    )
    root = Path(__file__).parents[2]
    run = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == str([ids.tolist() for ids in all_ids(federate(SPEC))])


def process_wide_states() -> tuple[str, list[int], object]:
    return repr(np.random.get_state()), torch.get_rng_state().tolist(), random.getstate()  # noqa: NPY002


def test_process_wide_generators_are_neither_used_nor_touched() -> None:
    spec = replace(SPEC, alpha=0.5)
    np.random.seed(5)  # noqa: NPY002
    torch.manual_seed(5)
    random.seed(5)
    before = process_wide_states()
    first = fresh(spec)
    assert process_wide_states() == before
    np.random.seed(6)  # noqa: NPY002
    torch.manual_seed(6)
    random.seed(6)
    second = fresh(spec)
    assert all(np.array_equal(a, b) for a, b in zip(all_ids(first), all_ids(second), strict=True))


def test_fashion_mnist_from_a_root(tmp_path: Path, write_fashion_mnist: Callable[..., Path]) -> None:
    write_fashion_mnist(tmp_path / "FashionMNIST" / "raw")
    data = federate(DataSpec("fashion-mnist", str(tmp_path), 4, "iid", 1.0, "none", 1.0, 1))
    assert [len(pool) for pool in data.pools] == [15] * 4
    assert [len(pool) for pool in data.test_pools] == [5] * 4
    assert data.rare_labels == ()


def test_home_is_expanded_and_a_relative_root_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    spec = DataSpec("fashion-mnist", "~/data", 4, "iid", 1.0, "none", 1.0, 1)
    with pytest.raises(DatasetNotFoundError, match=f"{tmp_path}/data: no such folder"):
        federate(spec)
    for root in ("data", "./~data"):
        with pytest.raises(DatasetNotFoundError, match=f"is relative.* such as {tmp_path}/"):
            federate(replace(spec, root=root))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"clients": 5000}, "580 training images cannot be dealt to 5000 clients"),
        ({"clients": 0}, "clients is 0"),
        ({"alpha": 0.0}, r"data\.alpha is 0;"),
        ({"imbalance": 0.5}, r"imbalance is 0\.5"),
        ({"partition": "piles"}, "partition is 'piles'"),
        ({"long_tail": "linear"}, "long-tail is 'linear'"),
    ],
)
def test_settings_that_cannot_be(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(PartitionError, match=message):
        federate(replace(SPEC, **changes))


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([6000, 4301, 3083, 2210, 1584, 1135, 814, 583, 418, 300], (7, 8, 9)),
        ([5, 5, 5], ()),
        ([7], ()),
        ([50, 50, 40], (2,)),
        ([10, 80, 10], (0,)),
        ([5, 90, 5], (0, 2)),
        ([60, 0, 40], (1,)),
        ([5, 4, 91], (0, 1)),
        ([6, 4, 90], (0, 1)),
        ([6, 5, 89], (1,)),
    ],
)
def test_rare_labels(counts: list[int], expected: tuple[int, ...]) -> None:
    assert rare_labels(np.array(counts)) == expected


@given(st.lists(st.integers(0, 100), min_size=2, max_size=12))
def test_rare_labels_hold_a_tenth_of_the_images_or_are_one(counts: list[int]) -> None:
    rare = rare_labels(np.array(counts))
    assert list(rare) == sorted(set(rare))
    assert all(type(label) is int for label in rare)
    if len(set(counts)) == 1:
        assert rare == ()
        return
    common = [n for label, n in enumerate(counts) if label not in rare]
    mass = sum(counts[label] for label in rare)
    assert max(counts[label] for label in rare) <= min(common)
    assert len(rare) == 1 or 10 * mass <= sum(counts)
    assert 10 * (mass + min(common)) > sum(counts)


def test_rare_labels_at_few_clients_are_the_ones_that_were_chosen() -> None:
    data = federate(replace(SPEC, partition="rare-holders", rare_labels=(9, 3), rare_holders=2))
    assert data.rare_labels == (3, 9)
    counts = np.stack([data.class_counts(client) for client in range(5)])
    assert ((counts[:, [3, 9]] > 0).sum(axis=0) == 2).all()
    assert np.ptp(counts.sum(axis=1)) <= 1
    ignored = federate(replace(SPEC, rare_labels=(9, 3), rare_holders=2))
    assert ignored.rare_labels == (7, 8, 9)
