"""Partitions."""

import hashlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets.errors import PartitionError
from datasets.partitions.long_tail import long_tail_counts
from datasets.partitions.partition import LEAST_ALPHA, MOST_ALPHA, partition, partition_test
from datasets.partitions.shares import dirichlet_shares, equal_size_matrix


def literal_matrix(counts: list[int], shares: list[list[float]]) -> list[list[int]]:
    """Return the equal-size matrix by the steps as FairFAL states them, in plain Python and with passes."""
    clients, total = len(shares), sum(counts)
    x = [[0] * len(counts) for _ in shares]
    for j, n in enumerate(counts):
        mass = np.sum([row[j] for row in shares])
        real = [n * (row[j] / mass if mass > 0 else 1 / clients) for row in shares]
        for i in range(clients):
            x[i][j] = int(real[i])
        order = sorted(range(clients), key=lambda i: int(real[i]) - real[i])
        for i in order[: n - sum(row[j] for row in x)]:
            x[i][j] += 1
    d = [total // clients + (i < total % clients) - sum(x[i]) for i in range(clients)]
    while any(d):
        receivers = sorted((i for i in range(clients) if d[i] > 0), key=lambda i: -d[i])
        donors = sorted((i for i in range(clients) if d[i] < 0), key=lambda i: d[i])
        for j in range(len(counts)):
            for receiver in receivers:
                for donor in sorted(donors, key=lambda i: -min(x[i][j], -d[i])):
                    moved = min(x[donor][j], -d[donor], d[receiver])
                    x[donor][j] -= moved
                    x[receiver][j] += moved
                    d[donor] += moved
                    d[receiver] -= moved
    return x


COUNTS = st.lists(st.one_of(st.just(0), st.integers(0, 60)), min_size=1, max_size=8)
SHARE = st.one_of(st.just(0.0), st.floats(0, 1), st.sampled_from([0.25, 0.5, 1.0]))


@st.composite
def counts_and_shares(draw: st.DrawFn) -> tuple[list[int], list[list[float]]]:
    counts = draw(COUNTS)
    row = st.lists(SHARE, min_size=len(counts), max_size=len(counts))
    return counts, draw(st.lists(row, min_size=1, max_size=7))


def test_matrices_worked_out_by_hand(cases: dict[str, Any]) -> None:
    for case in cases["partition"]["cases"]:
        matrix = equal_size_matrix(np.array(case["counts"]), np.array(case["shares"], dtype=float))
        assert matrix.tolist() == case["matrix"]


def test_remainders_go_to_the_largest_fractions_and_ties_to_the_lower_client() -> None:
    assert equal_size_matrix(np.array([5]), np.array([[0.25]] * 4)).tolist() == [[2], [1], [1], [1]]
    # Fractions 0.2, 0.2, 0.6: the third client gets the odd image, then gives one for equal sizes.
    shares = np.array([[0.2, 1.0], [0.2, 1.0], [0.6, 1.0]])
    assert equal_size_matrix(np.array([1, 0]), shares).tolist() == [[1, 0], [0, 0], [0, 0]]


def test_a_class_without_shares_is_dealt_uniformly() -> None:
    assert equal_size_matrix(np.array([9]), np.zeros((3, 1))).tolist() == [[3], [3], [3]]


@settings(max_examples=300)
@given(counts_and_shares())
def test_matrix_keeps_classes_whole_and_clients_equal(case: tuple[list[int], list[list[float]]]) -> None:
    counts, shares = case
    matrix = equal_size_matrix(np.array(counts), np.array(shares))
    assert matrix.dtype == np.int64
    assert (matrix >= 0).all()
    assert matrix.sum(axis=0).tolist() == counts
    total, clients = sum(counts), len(shares)
    sizes = [total // clients + (i < total % clients) for i in range(clients)]
    assert matrix.sum(axis=1).tolist() == sizes


@settings(max_examples=200)
@given(counts_and_shares())
def test_matrix_follows_the_stated_steps(case: tuple[list[int], list[list[float]]]) -> None:
    counts, shares = case
    assert equal_size_matrix(np.array(counts), np.array(shares)).tolist() == literal_matrix(counts, shares)


@given(st.integers(1, 12), st.integers(1, 12), st.floats(1e-300, 1e300), st.integers(0, 99))
def test_shares_have_columns_of_sum_one_or_nothing(
    clients: int, classes: int, alpha: float, seed: int
) -> None:
    shares = dirichlet_shares(clients, classes, alpha, np.random.default_rng(seed))
    assert shares.shape == (clients, classes)
    assert (shares >= 0).all()
    assert (shares.sum(axis=0) < 1 + 1e-9).all()
    if alpha > 1:
        np.testing.assert_allclose(shares.sum(axis=0), 1, rtol=1e-9)


@given(
    COUNTS,
    st.integers(1, 9),
    st.sampled_from(["dirichlet", "iid"]),
    st.floats(1e-2, 1e3),
    st.integers(0, 9),
)
def test_every_image_is_at_one_client(
    counts: list[int], clients: int, name: str, alpha: float, seed: int
) -> None:
    classes = len(counts)
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(classes), counts))
    ids = np.flatnonzero(np.arange(len(labels)) % 5 > 0)
    if len(ids) < clients:
        return
    dealt = partition(labels, ids, classes, clients, name, alpha, seed)
    assert sorted(np.concatenate(dealt.pools).tolist()) == ids.tolist()
    sizes = [len(pool) for pool in dealt.pools]
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes) - min(sizes) <= 1
    for pool, row in zip(dealt.pools, dealt.matrix, strict=True):
        assert pool.dtype == np.int64
        assert np.bincount(labels[pool], minlength=classes).tolist() == row.tolist()
    present = dealt.matrix.sum(axis=0) > 0
    np.testing.assert_allclose(dealt.shares.sum(axis=0), present.astype(float))


@pytest.mark.parametrize(
    ("classes", "size", "imbalance", "sizes"),
    [
        (10, 6000, 20, [2043] * 8 + [2042] * 2),
        (10, 5000, 20, [1703] * 3 + [1702] * 7),
        (100, 500, 20, [1591] * 7 + [1590] * 3),
    ],
)
def test_client_sizes_of_long_tails(classes: int, size: int, imbalance: float, sizes: list[int]) -> None:
    counts = long_tail_counts(np.full(classes, size), "exponential", imbalance)
    shares = dirichlet_shares(10, classes, 0.1, np.random.default_rng(0))
    assert equal_size_matrix(counts, shares).sum(axis=1).tolist() == sizes


@pytest.mark.parametrize(
    ("counts", "sizes"),
    [
        ([33484, 10213, 7754, 46026], [9748] * 7 + [9747] * 3),
        ([228, 359, 769, 80, 779, 4693, 99], [701] * 7 + [700] * 3),
    ],
)
def test_client_sizes_of_natural_tails(counts: list[int], sizes: list[int]) -> None:
    shares = dirichlet_shares(10, len(counts), 0.1, np.random.default_rng(0))
    assert equal_size_matrix(np.array(counts), shares).sum(axis=1).tolist() == sizes


def labels_of_long_tail() -> np.ndarray:
    return np.repeat(np.arange(10), long_tail_counts(np.full(10, 600), "exponential", 20))


@settings(max_examples=60, deadline=None)
@given(
    exponent=st.floats(-2, 6),
    clients=st.integers(1, 30),
    classes=st.integers(1, 60),
    name=st.sampled_from(["dirichlet", "rare-holders"]),
    seed=st.integers(0, 1000),
)
def test_every_alpha_that_is_allowed_gives_whole_partitions(
    exponent: float, clients: int, classes: int, name: str, seed: int
) -> None:
    alpha = min(max(10.0**exponent, LEAST_ALPHA), MOST_ALPHA)
    rare = [0] if name == "rare-holders" and classes > 1 else []
    name = name if rare else "dirichlet"
    labels = np.repeat(np.arange(classes), 40)
    with np.errstate(all="raise", under="ignore"):
        dealt = partition(labels, np.arange(len(labels)), classes, clients, name, alpha, seed, rare, 1)
    assert np.isfinite(dealt.shares).all()
    assert (dealt.matrix.sum(axis=0) == 40).all()
    if not rare:
        assert np.ptp(dealt.matrix.sum(axis=1)) <= 1


def test_alpha_decides_how_many_labels_a_client_holds() -> None:
    labels = labels_of_long_tail()
    ids = np.arange(len(labels))
    few = partition(labels, ids, 10, 10, "dirichlet", 0.1, 1).matrix
    many = partition(labels, ids, 10, 10, "dirichlet", 100, 1).matrix
    assert (few > 0).sum(axis=1).mean() < 9
    assert (many > 0).all()


@pytest.mark.parametrize("name", ["dirichlet", "iid"])
def test_pool_order_does_not_follow_the_class(name: str) -> None:
    labels = labels_of_long_tail()
    dealt = partition(labels, np.arange(len(labels)), 10, 5, name, 10, 1)
    for pool in dealt.pools:
        classes = labels[pool].astype(float)
        assert abs(np.corrcoef(np.arange(len(pool)), classes)[0, 1]) < 0.25
        assert abs(np.corrcoef(np.arange(len(pool)), pool)[0, 1]) < 0.25


@pytest.mark.parametrize("name", ["dirichlet", "iid"])
def test_partition_depends_on_the_seed_and_not_on_the_order_of_ids(name: str) -> None:
    labels = labels_of_long_tail()
    ids = np.arange(len(labels))
    first = partition(labels, ids, 10, 4, name, 0.5, 1)
    again = partition(labels, ids[::-1], 10, 4, name, 0.5, 1)
    other = partition(labels, ids, 10, 4, name, 0.5, 2)
    assert all(np.array_equal(a, b) for a, b in zip(first.pools, again.pools, strict=True))
    assert not any(np.array_equal(a, b) for a, b in zip(first.pools, other.pools, strict=True))


def test_iid_clients_hold_every_label_in_like_shares() -> None:
    labels = np.arange(4000) % 4
    matrix = partition(labels, np.arange(4000), 4, 4, "iid", 0.1, 1).matrix
    assert matrix.min() > 200
    assert matrix.max() < 300


def test_test_split_follows_the_training_shares() -> None:
    shares = np.array([[1.0, 0.0], [0.0, 1.0]])
    labels = np.array([0, 1] * 10)
    pools = partition_test(labels, shares, 1)
    assert [set(labels[pool].tolist()) for pool in pools] == [{0}, {1}]
    # Of 12 + 4 images, eight each: client 0 gives up four of label 0 for the sake of size.
    labels = np.array([0] * 12 + [1] * 4)
    pools = partition_test(labels, shares, 1)
    assert [np.bincount(labels[pool], minlength=2).tolist() for pool in pools] == [[8, 0], [4, 4]]


@pytest.mark.parametrize("alpha", [0, -0.1, 1e-8, 0.0099, 1.1e6, 1e308, float("nan"), float("inf")])
def test_alpha_out_of_range(alpha: float) -> None:
    with pytest.raises(PartitionError, match=r"data\.alpha is .* must be 0\.01 .* to 1e\+06 .*'shards'"):
        partition(np.array([0, 1]), np.array([0, 1]), 2, 2, "dirichlet", alpha, 1)


@pytest.mark.parametrize("name", ["dirichlet", "iid"])
def test_more_clients_than_images(name: str) -> None:
    with pytest.raises(PartitionError, match="3 training images cannot be dealt to 4 clients"):
        partition(np.array([0, 1, 0, 1]), np.array([0, 1, 3]), 2, 4, name, 0.1, 1)
    with pytest.raises(PartitionError, match="1 test images cannot be dealt to 2 clients"):
        partition_test(np.array([0]), np.ones((2, 1)), 1)


def test_no_clients() -> None:
    with pytest.raises(PartitionError, match="clients is 0"):
        partition(np.array([0]), np.array([0]), 1, 0, "iid", 1, 1)


def test_unknown_partition() -> None:
    with pytest.raises(PartitionError, match="'shard'; choose one of dirichlet, iid"):
        partition(np.array([0]), np.array([0]), 1, 1, "shard", 1, 1)


# --- rare holders


@settings(max_examples=200)
@given(counts_and_shares(), st.data())
def test_rare_labels_stay_and_the_others_make_sizes_as_equal_as_they_can(
    case: tuple[list[int], list[list[float]]], data: st.DataObject
) -> None:
    counts, shares = np.array(case[0]), np.array(case[1])
    rare = data.draw(st.lists(st.integers(0, len(counts) - 1), unique=True))
    matrix = equal_size_matrix(counts, shares, rare)
    alone = equal_size_matrix(counts, shares, range(len(counts)))
    assert (matrix >= 0).all()
    assert matrix.sum(axis=0).tolist() == counts.tolist()
    assert (matrix[:, rare] == alone[:, rare]).all()
    sizes, held = matrix.sum(axis=1), matrix[:, rare].sum(axis=1)
    # Who was given anything is at most one image above the smallest.
    assert (sizes[sizes > held] <= sizes.min() + 1).all()


@settings(max_examples=100)
@given(
    clients=st.integers(2, 12),
    holders=st.integers(1, 12),
    rare=st.lists(st.integers(0, 5), min_size=1, max_size=5, unique=True),
    alpha=st.floats(1e-2, 1e2),
    seed=st.integers(0, 9),
)
def test_rare_holders(clients: int, holders: int, rare: list[int], alpha: float, seed: int) -> None:
    holders = min(holders, clients)
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(6), 60))
    ids = np.arange(len(labels))
    dealt = partition(labels, ids, 6, clients, "rare-holders", alpha, seed, rare, holders)
    again = partition(labels, ids, 6, clients, "rare-holders", alpha, seed, rare, holders)
    assert all(np.array_equal(a, b) for a, b in zip(dealt.pools, again.pools, strict=True))
    assert sorted(np.concatenate(dealt.pools).tolist()) == ids.tolist()
    assert [np.bincount(labels[pool], minlength=6).tolist() for pool in dealt.pools] == dealt.matrix.tolist()
    held = dealt.matrix[:, rare] > 0
    assert (held.sum(axis=0) == holders).all()
    assert (held.any(axis=1) == held.all(axis=1)).all()
    assert np.ptp(dealt.matrix[:, rare][held.all(axis=1)], axis=0).max() <= 1
    test_pools = partition_test(labels, dealt.shares, seed, rare)
    assert all(
        not np.isin(labels[pool], rare).any() or h.all() for pool, h in zip(test_pools, held, strict=True)
    )


def test_a_holder_of_more_than_an_equal_share_keeps_it_and_the_others_are_equal() -> None:
    # 40 rare images at one of 4 clients, 20 common ones for the other three: 7, 7, 6.
    labels = np.repeat([0, 1], [20, 40])
    dealt = partition(labels, np.arange(60), 2, 4, "rare-holders", 1.0, 3, [1], 1)
    assert sorted(dealt.matrix.tolist()) == [[0, 40], [6, 0], [7, 0], [7, 0]]


@pytest.mark.parametrize(
    ("rare", "holders", "parts"),
    [
        ([], 1, ["rare labels are none", "0 to 3"]),
        ([4], 1, ["rare labels are 4", "0 to 3"]),
        ([1, 1], 1, ["rare labels are 1, 1", "each once"]),
        ([0, 1, 2, 3], 1, ["not all"]),
        ([1], 0, ["0 clients hold", "data.rare-holders", "data.clients = 3"]),
        ([1], 4, ["4 clients hold"]),
        ([1, 2, 3], 1, ["1 of 3 clients would hold no training image"]),
    ],
)
def test_rare_holders_that_cannot_be(rare: list[int], holders: int, parts: list[str]) -> None:
    labels = np.repeat(np.arange(4), [1, 5, 5, 5])
    with pytest.raises(PartitionError) as error:
        partition(labels, np.arange(16), 4, 3, "rare-holders", 1.0, 0, rare, holders)
    assert all(part in str(error.value) for part in parts)


@pytest.mark.parametrize(
    ("name", "rare", "digest"),
    [
        ("dirichlet", (), "17c6db93f3dcbfd2"),
        ("iid", (), "c67596d1e6b13dea"),
        ("rare-holders", (8, 9), "c86670cd85860b54"),
    ],
)
def test_a_seed_gives_the_same_partition_for_good(name: str, rare: tuple[int, ...], digest: str) -> None:
    labels = np.repeat(np.arange(10), np.arange(100, 0, -10))
    dealt = partition(labels, np.arange(len(labels)), 10, 5, name, 0.3, 7, rare, 2)
    pools = [*dealt.pools, *partition_test(labels, dealt.shares, 7, rare)]
    found = hashlib.sha256(b"|".join(pool.astype("<i8").tobytes() for pool in pools))
    assert found.hexdigest()[:16] == digest
