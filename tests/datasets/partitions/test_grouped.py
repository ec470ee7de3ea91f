"""Groups: images of the same thing stay at one client."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets.errors import PartitionError
from datasets.partitions.grouped import Groups, deal_by_matrix
from datasets.partitions.partition import DEALT, partition
from datasets.partitions.shares import dirichlet_shares, equal_size_matrix
from datasets.randomness import generator


def test_a_group_counts_as_what_most_of_its_images_are() -> None:
    labels, numbers = np.array([2, 0, 0, 1, 1, 2]), np.array([7, 7, 7, 3, 9, 9])
    groups = Groups.of(labels, np.array([5, 0, 1, 2, 3]), 3, numbers)
    assert groups.ids.tolist() == [0, 1, 2, 3, 5]
    assert groups.group.tolist() == [1, 1, 1, 0, 2]
    assert groups.sizes.tolist() == [1, 3, 1]
    assert groups.labels.tolist() == [1, 0, 2]
    assert Groups.of(labels, np.arange(6), 3, numbers).labels.tolist() == [1, 0, 1]  # a tie: the lower label
    assert groups.class_counts(3).tolist() == [3, 1, 1]


def test_the_largest_group_goes_to_the_client_that_lacks_most() -> None:
    # Groups of 4, 2 and 2, wanted 3 and 5: 4 to client 1, 2 to client 0; now both lack 1, and 0 comes first.
    groups = Groups(
        np.arange(8), np.array([0] * 2 + [1] * 4 + [2] * 2), np.array([2, 4, 2]), np.zeros(3, int)
    )
    assert deal_by_matrix(groups, np.array([[3], [5]]), 1).tolist() == [0, 1, 0]


@st.composite
def grouped_labels(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Draw labels and group numbers of images; most groups have one label."""
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=40))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    numbers = np.repeat(rng.permutation(len(sizes)), sizes)
    labels = rng.integers(0, 4, len(sizes))[numbers]
    mixed = rng.random(len(labels)) < draw(st.sampled_from([0.0, 0.2]))
    labels[mixed] = rng.integers(0, 4, mixed.sum())
    order = rng.permutation(len(labels))
    return labels[order], numbers[order]


@settings(max_examples=150)
@given(grouped_labels(), st.integers(1, 7), st.sampled_from(DEALT), st.integers(0, 9))
def test_no_group_is_divided(case: tuple[np.ndarray, np.ndarray], clients: int, name: str, seed: int) -> None:
    labels, numbers = case
    ids = np.flatnonzero(np.arange(len(labels)) % 7 > 0)
    rare = (3,) if name == "rare-holders" else ()

    def deal() -> list[np.ndarray]:
        return list(
            partition(
                *(labels, ids, 4, clients, name, 0.3, seed, rare, 1),
                shards_per_client=1,
                group_numbers=numbers,
            ).pools
        )

    if len(np.unique(numbers[ids])) < clients:
        with pytest.raises(PartitionError, match="cannot be dealt to"):
            deal()
        return
    try:
        pools = deal()
    except PartitionError:
        if name != "rare-holders":
            raise
        return  # too few groups of common labels
    assert sorted(np.concatenate(pools).tolist()) == ids.tolist()
    assert all(np.array_equal(a, b) for a, b in zip(pools, deal(), strict=True))
    held = [set(numbers[pool].tolist()) for pool in pools]
    assert sum(map(len, held)) == len(set().union(*held))
    sizes = [len(pool) for pool in pools]
    assert min(sizes) > 0
    if name in ("dirichlet", "iid"):
        assert max(sizes) - min(sizes) <= np.bincount(numbers[ids]).max()


def test_groups_of_one_image_are_dealt_in_the_numbers_of_the_matrix() -> None:
    labels = np.repeat(np.arange(4), [40, 30, 20, 13])
    for name, rare in (("dirichlet", ()), ("rare-holders", (3,))):
        alone = partition(labels, np.arange(103), 4, 5, name, 0.3, 2, rare, 2)
        each = partition(
            labels, np.arange(103), 4, 5, name, 0.3, 2, rare, 2, group_numbers=np.arange(103)[::-1]
        )
        assert each.matrix.tolist() == alone.matrix.tolist()


def test_class_counts_come_near_what_the_shares_ask_for() -> None:
    # Like skin lesions: most have one image, some up to six.
    rng = np.random.default_rng(0)
    sizes = rng.choice([1, 2, 3, 6], 1500, p=[0.75, 0.17, 0.06, 0.02])
    numbers = np.repeat(np.arange(1500), sizes)
    labels = rng.choice(7, 1500, p=[0.66, 0.11, 0.11, 0.05, 0.04, 0.02, 0.01])[numbers]
    dealt = partition(labels, np.arange(len(labels)), 7, 10, "dirichlet", 0.3, 4, group_numbers=numbers)
    shares = dirichlet_shares(10, 7, 0.3, generator(4, "partition shares"))
    wanted = equal_size_matrix(np.bincount(labels, minlength=7), shares)
    assert np.abs(dealt.matrix - wanted).max() <= 6


def test_more_clients_than_groups() -> None:
    with pytest.raises(PartitionError, match="2 groups of training images cannot be dealt to 3 clients"):
        partition(
            np.zeros(6, int), np.arange(6), 1, 3, "iid", 1.0, 1, group_numbers=np.array([0, 0, 0, 1, 1, 1])
        )
