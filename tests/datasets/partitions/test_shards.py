"""Shards: pieces of the images sorted by label."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets.errors import PartitionError
from datasets.partitions.partition import partition
from datasets.partitions.shards import shard_cuts


def test_shards_worked_out_by_hand() -> None:
    # By label: images 1, 3, 5 | 0, 4, 7, 8 | 2, 6. Four shards of 3, 2, 2, 2 images.
    labels = np.array([1, 0, 2, 0, 1, 0, 2, 1, 1])
    shards = [{1, 3, 5}, {0, 4}, {7, 8}, {2, 6}]
    for seed in range(5):
        dealt = partition(labels, np.arange(9), 3, 2, "shards", 1.0, seed, shards_per_client=2)
        for pool in dealt.pools:
            assert sum(shard <= set(pool.tolist()) for shard in shards) == 2
        assert sorted(map(len, dealt.pools)) == [4, 5]
    hands = {
        frozenset(partition(labels, np.arange(9), 3, 2, "shards", 1.0, seed).pools[0].tolist())
        for seed in range(20)
    }
    assert len(hands) > 2


def test_cuts_move_to_the_nearer_end_of_a_group() -> None:
    # Ten images, two shards: a cut after 5 would divide the group of 4 that ends at 3 and 7.
    assert shard_cuts(np.array([3, 4, 3]), 2) == [1]
    assert shard_cuts(np.array([2, 4, 4]), 2) == [2]
    # A large group takes the place of several shards, and none is empty all the same.
    assert shard_cuts(np.array([9, 1, 1, 1]), 4) == [1, 2, 3]
    assert shard_cuts(np.array([1, 1, 1, 9]), 4) == [1, 2, 3]
    assert shard_cuts(np.ones(7, dtype=np.int64), 3) == [3, 5]


@given(st.integers(1, 60), st.integers(1, 6), st.integers(1, 4), st.integers(0, 9))
def test_every_image_is_dealt_and_sizes_differ_by_a_shards_remainder(
    images: int, clients: int, per_client: int, seed: int
) -> None:
    labels = np.random.default_rng(seed).integers(0, 5, images)
    if clients * per_client > images:
        with pytest.raises(PartitionError, match=r"data\.(shards-per-client|clients)|cannot be dealt"):
            partition(
                labels, np.arange(images), 5, clients, "shards", 1.0, seed, shards_per_client=per_client
            )
        return
    dealt = partition(
        labels, np.arange(images), 5, clients, "shards", 1.0, seed, shards_per_client=per_client
    )
    assert sorted(np.concatenate(dealt.pools).tolist()) == list(range(images))
    sizes = [len(pool) for pool in dealt.pools]
    assert max(sizes) - min(sizes) <= per_client


def test_more_shards_than_images_name_both_keys() -> None:
    with pytest.raises(PartitionError, match=r"data\.shards-per-client = 3 with data\.clients = 2 makes 6"):
        partition(np.array([0, 1, 0, 1]), np.arange(4), 2, 2, "shards", 1.0, 1, shards_per_client=3)
