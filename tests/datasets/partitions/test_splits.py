"""Test splits: 20 % of each class and site, no group on both sides."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from datasets.partitions.splits import draw_test_split


def test_a_fifth_of_each_class() -> None:
    labels = np.repeat([0, 1, 2], [50, 10, 20])
    train, test = draw_test_split(labels, "x", 1)
    assert np.bincount(labels[test]).tolist() == [10, 2, 4]
    assert sorted([*train, *test]) == list(range(80))


def test_tiny_classes() -> None:
    # 1 -> 0, 2 -> 1, 7 -> 1 (1.4), 8 -> 2 (1.6)
    labels = np.repeat([0, 1, 2, 3], [1, 2, 7, 8])
    for seed in range(20):
        assert np.bincount(labels[draw_test_split(labels, "x", seed)[1]], minlength=4).tolist() == [
            0,
            1,
            1,
            2,
        ]


def test_sites_give_their_part() -> None:
    labels, sites = np.zeros(100, dtype=np.int64), np.repeat([0, 1, 2], [60, 25, 15])
    for seed in range(20):
        counts = np.bincount(sites[draw_test_split(labels, "x", seed, sites)[1]], minlength=3)
        assert np.abs(counts - [12, 5, 3]).max() <= 1


def test_groups_stay_whole_and_do_not_bias_the_share() -> None:
    # 700 lesions of one image and 300 of three: 1,600 images, of which 320 are a fifth.
    groups = np.concatenate([np.arange(700), np.repeat(np.arange(700, 1000), 3)])
    labels = np.zeros(1600, dtype=np.int64)
    for seed in range(20):
        train, test = draw_test_split(labels, "x", seed, groups=groups)
        assert not set(groups[train]) & set(groups[test])
        assert abs(len(test) - 320) <= 3


def test_the_seed_decides() -> None:
    labels = np.arange(100) % 4
    splits = [
        draw_test_split(labels, name, seed)[1].tolist()
        for name, seed in (("x", 1), ("x", 1), ("x", 2), ("y", 1))
    ]
    assert splits[0] == splits[1]
    assert splits[0] != splits[2]
    assert splits[0] != splits[3]


def test_every_image_is_drawn_as_often() -> None:
    labels = np.repeat([0, 1], [10, 5])
    times = sum(np.bincount(draw_test_split(labels, "x", seed)[1], minlength=15) for seed in range(1000))
    assert np.abs(times / 1000 - 0.2).max() < 0.05


@given(st.data())
def test_properties(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 60))
    labels, sites, groups = (
        np.array(data.draw(st.lists(st.integers(0, most), min_size=size, max_size=size)))
        for most in (3, 2, 40)
    )
    train, test = draw_test_split(labels, "x", data.draw(st.integers(0, 5)), sites, groups)
    assert sorted([*train, *test]) == list(range(size))
    assert not set(groups[train]) & set(groups[test])
