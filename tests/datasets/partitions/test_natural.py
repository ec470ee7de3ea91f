"""The natural partition: a client of each site."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from datasets.base import DataCard, ImageDataset, ImageSplit, Sites
from datasets.errors import PartitionError
from datasets.federated import DataSpec, deal

SPEC = DataSpec("skin", "", 3, "natural", 0.3, "none", 1.0, 1)
CARD = DataCard("skin", "Skin", "here", "CC0", ("common", "rare"), (0.5,), (0.5,))


def split(labels: list[int]) -> ImageSplit:
    return ImageSplit(torch.zeros(len(labels), 1, 4, 4, dtype=torch.uint8), np.array(labels))


DATASET = ImageDataset(
    CARD,
    split([0, 0, 0, 0, 1, 0, 1, 0]),
    split([0, 1, 0]),
    Sites(("graz", "basel", "wien"), np.array([2, 0, 0, 1, 2, 0, 2, 2]), np.array([0, 2, 2])),
)


def test_every_site_keeps_its_own_images_in_the_order_of_the_names() -> None:
    data = deal(DATASET, SPEC)
    assert [sorted(pool.tolist()) for pool in data.pools] == [[1, 2, 5], [3], [0, 4, 6, 7]]
    assert [sorted(pool.tolist()) for pool in data.test_pools] == [[0], [], [1, 2]]
    assert data.client_names == ("graz", "basel", "wien")
    assert data.rare_labels == (1,)
    assert all(pool.dtype == np.int64 for pool in (*data.pools, *data.test_pools))
    again = deal(DATASET, SPEC)
    assert all(np.array_equal(a, b) for a, b in zip(data.pools, again.pools, strict=True))


def test_clients_of_other_partitions_have_numbers() -> None:
    assert deal(DATASET, replace(SPEC, partition="iid")).client_names == ("site-00", "site-01", "site-02")


def test_the_number_of_clients_is_that_of_the_sites() -> None:
    with pytest.raises(PartitionError, match=r"3 \(graz, basel, wien\): set data\.clients = 3, not 5"):
        deal(DATASET, replace(SPEC, clients=5))


def test_a_data_set_without_sites() -> None:
    with pytest.raises(PartitionError, match=r"skin does not tell at which site .* name the sites"):
        deal(replace(DATASET, sites=None), SPEC)


def test_a_site_without_training_images_is_named_with_the_way_out() -> None:
    assert DATASET.sites is not None
    nobody = replace(DATASET.sites, train=np.array([2, 0, 0, 0, 2, 0, 2, 2]))
    with pytest.raises(PartitionError, match=r"is left at basel\. Leave the site out"):
        deal(replace(DATASET, sites=nobody), SPEC)
    one = replace(DATASET.sites, train=np.array([2, 0, 0, 0, 1, 0, 2, 2]))  # image 4, which is not kept
    with pytest.raises(PartitionError, match=r"is left at basel after the long tail\. .*data\.imbalance"):
        deal(replace(DATASET, sites=one), replace(SPEC, long_tail="exponential", imbalance=3.9))
