"""The natural partition: every site of a data set is a client, with the images that were made there."""

import numpy as np
import numpy.typing as npt

from datasets.base import ImageDataset, Sites
from datasets.errors import PartitionError
from datasets.partitions.partition import Partition
from datasets.randomness import generator


def partition_by_site(
    dataset: ImageDataset, ids: npt.NDArray[np.int64], clients: int, seed: int
) -> Partition:
    """Return the training images ``ids`` of each site, in the order of the sites' names, however many.

    Raises
    ------
    PartitionError
        If the data set knows no sites, ``clients`` is not their number, or one of them has no image.
    """
    sites = require_sites(dataset, clients)
    pools = _pools(ids, sites.train, len(sites.names), seed, "training")
    empty = [name for name, pool in zip(sites.names, pools, strict=True) if len(pool) == 0]
    if empty:
        thinned = len(ids) < len(dataset.train)
        way_out = (
            "Keep more images (data.imbalance, data.long-tail = 'none')"
            if thinned
            else "Leave the site out of the data set"
        )
        raise PartitionError(
            f"data.partition = 'natural': no training image is left at {', '.join(empty)}"
            f"{' after the long tail' if thinned else ''}. {way_out}, or take another data.partition."
        )
    return Partition.of(pools, dataset.train.labels, dataset.num_classes)


def partition_test_by_site(
    dataset: ImageDataset, clients: int, seed: int
) -> tuple[npt.NDArray[np.int64], ...]:
    """Return the ids of each site's own test images; a site may have none."""
    sites = require_sites(dataset, clients)
    return _pools(np.arange(len(dataset.test)), sites.test, clients, seed, "test")


def require_sites(dataset: ImageDataset, clients: int) -> Sites:
    """Return the sites of a data set; raises PartitionError where it has none, or not ``clients`` of them."""
    sites = dataset.sites
    if sites is None:
        raise PartitionError(
            f"data.partition = 'natural' makes a client of each site, and {dataset.card.name} does not tell "
            "at which site an image was made. Take a data set whose folders or tables name the sites "
            "(`rarefl data NAME` shows them), or another data.partition, such as 'dirichlet'."
        )
    if clients != len(sites.names):
        raise PartitionError(
            f"data.partition = 'natural' makes a client of each site, and {dataset.card.name} has "
            f"{len(sites.names)} ({', '.join(sites.names)}): set data.clients = {len(sites.names)}, not "
            f"{clients}, and num-supernodes as well."
        )
    return sites


def _pools(
    ids: npt.NDArray[np.int64], site: npt.NDArray[np.int64], count: int, seed: int, split: str
) -> tuple[npt.NDArray[np.int64], ...]:
    ids = np.sort(ids)
    return tuple(
        generator(seed, "pool order", split, place).permutation(ids[site[ids] == place])
        for place in range(count)
    )
