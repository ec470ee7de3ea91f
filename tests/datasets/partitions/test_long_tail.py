"""Long tails."""

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from datasets.errors import PartitionError
from datasets.partitions.long_tail import long_tail_counts, long_tail_ids

FASHION_MNIST = [6000, 4301, 3083, 2210, 1584, 1135, 814, 583, 418, 300]
CIFAR10 = [5000, 3584, 2569, 1842, 1320, 946, 678, 486, 348, 250]


def equal(classes: int, size: int) -> np.ndarray:
    return np.full(classes, size, dtype=np.int64)


@pytest.mark.parametrize(("size", "expected"), [(6000, FASHION_MNIST), (5000, CIFAR10)])
def test_exponential_counts(size: int, expected: list[int]) -> None:
    assert long_tail_counts(equal(10, size), "exponential", 20).tolist() == expected


def test_exponential_counts_of_a_hundred_classes() -> None:
    counts = long_tail_counts(equal(100, 500), "exponential", 20).tolist()
    assert counts[:5] == [500, 485, 470, 456, 442]
    assert counts[-5:] == [28, 27, 26, 25, 25]


def test_totals(cases: dict[str, Any]) -> None:
    shapes = {"fashion-mnist": (10, 6000), "cifar10": (10, 5000), "cifar100": (100, 500)}
    totals = {
        name: long_tail_counts(equal(*shape), "exponential", 20).sum() for name, shape in shapes.items()
    }
    assert totals == cases["arithmetic"]["long_tail_totals_rho_20"]


def test_step_keeps_the_first_half_whole() -> None:
    assert long_tail_counts(equal(4, 100), "step", 10).tolist() == [100, 100, 10, 10]
    assert long_tail_counts(equal(3, 100), "step", 10).tolist() == [100, 100, 10]


def test_none_keeps_everything() -> None:
    sizes = np.array([3, 0, 7])
    assert long_tail_counts(sizes, "none", 20).tolist() == [3, 0, 7]


def test_unequal_classes_never_give_more_than_they_have() -> None:
    sizes = np.array([5, 100, 45])
    assert long_tail_counts(sizes, "exponential", 4).tolist() == [5, 25, 12]
    assert long_tail_counts(sizes, "exponential", 1).tolist() == [5, 50, 45]


@pytest.mark.parametrize("profile", ["exponential", "step", "none"])
def test_one_class(profile: str) -> None:
    assert long_tail_counts(np.array([8]), profile, 20).tolist() == [8]


@pytest.mark.parametrize("imbalance", [0.99, 0, -1, float("nan"), float("inf")])
def test_imbalance_out_of_range(imbalance: float) -> None:
    with pytest.raises(PartitionError, match=r"imbalance is .* at least 1"):
        long_tail_counts(equal(2, 5), "exponential", imbalance)


@pytest.mark.parametrize(
    ("sizes", "profile", "imbalance", "emptied"),
    [
        # 500 images each: 500 / 1000 of the last class; of ten classes the last alone.
        ([500] * 10, "exponential", 1000, 1),
        ([500] * 10, "step", 1000, 5),
        # 5, 5 * 10**-0.5 = 1.58, 0.5
        ([5] * 3, "exponential", 10, 1),
        # A class without images loses none.
        ([10, 0, 5], "exponential", 5.1, 1),
    ],
)
def test_an_imbalance_that_empties_a_class_is_refused(
    sizes: list[int], profile: str, imbalance: float, emptied: int
) -> None:
    mean = f"{sum(sizes) / len(sizes):g}"
    with pytest.raises(PartitionError) as failure:
        long_tail_counts(np.array(sizes), profile, imbalance)
    text = str(failure.value)
    assert f"imbalance is {imbalance:g}" in text
    assert f"no image would be left of {emptied} of the {len(sizes)} classes" in text
    assert f"below {mean}; lower " in text


@given(
    st.lists(st.integers(1, 300), min_size=1, max_size=12),
    st.sampled_from(["exponential", "step"]),
    st.floats(0, 1, exclude_max=True),
)
def test_an_imbalance_below_the_mean_class_size_empties_none(
    sizes: list[int], profile: str, place: float
) -> None:
    mean = sum(sizes) / len(sizes)
    imbalance = 1 + place * (mean - 1) * (1 - 1e-9)
    assert (long_tail_counts(np.array(sizes), profile, imbalance) >= 1).all()


def test_unknown_profile() -> None:
    with pytest.raises(PartitionError, match="'exp'; choose one of exponential, step, none"):
        long_tail_counts(equal(2, 5), "exp", 2)


@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=6),
    st.sampled_from(["exponential", "step", "none"]),
    st.floats(1, 50),
    st.integers(0, 5),
)
def test_ids_are_distinct_and_match_the_counts(
    sizes: list[int], profile: str, imbalance: float, seed: int
) -> None:
    if profile != "none" and sum(sizes):
        imbalance = min(imbalance, max(1.0, 0.99 * sum(sizes) / len(sizes)))
    assume(profile == "none" or sum(sizes) >= len(sizes))
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    ids = long_tail_ids(labels, len(sizes), profile, imbalance, seed)
    assert ids.dtype == np.int64
    assert len(np.unique(ids)) == len(ids)
    assert (np.diff(labels[ids]) >= 0).all()
    kept = np.bincount(labels[ids], minlength=len(sizes))
    assert kept.tolist() == long_tail_counts(np.array(sizes), profile, imbalance).tolist()


def test_subset_is_random_and_seeded() -> None:
    labels = np.arange(1000) % 2
    first, again, other = (long_tail_ids(labels, 2, "exponential", 10, seed) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(np.sort(first[500:]), np.sort(other[500:]))


def test_subset_of_a_class_does_not_depend_on_the_other_classes() -> None:
    labels = np.array([0] * 30 + [1] * 30 + [2] * 30)
    merged = np.where(labels == 2, 1, labels)
    three, two = (long_tail_ids(each, n, "exponential", 1, 4) for each, n in ((labels, 3), (merged, 2)))
    assert np.array_equal(three[:30], two[:30])
