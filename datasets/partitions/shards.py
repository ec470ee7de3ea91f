"""Shards: few labels per client, as McMahan et al. deal MNIST (arXiv 1602.05629, section 3)."""

import numpy as np
import numpy.typing as npt

from datasets.errors import PartitionError
from datasets.partitions.grouped import Groups
from datasets.partitions.shares import equal_sizes
from datasets.randomness import generator


def deal_shards(groups: Groups, clients: int, per_client: int, seed: int) -> npt.NDArray[np.int64]:
    """Return the client of each group of images, (G,): ``per_client`` shards each, dealt at random.

    The images are sorted by label and cut into clients * per_client shards whose sizes differ by one image
    at most; where a cut would divide a group, it moves to the group's nearer end (the earlier one in a tie).

    Raises
    ------
    PartitionError
        If there are fewer groups than shards.
    """
    shards = clients * per_client
    if per_client < 1 or shards > len(groups):
        raise PartitionError(
            f"data.shards-per-client = {per_client} with data.clients = {clients} makes {shards} shards of "
            f"{len(groups)} training images or groups of them; there must be at least one shard per client "
            "and one image per shard. Lower one, or keep more images (data.imbalance, data.long-tail)."
        )
    by_label = np.argsort(groups.labels, kind="stable")
    cuts = shard_cuts(groups.sizes[by_label], shards)
    hands = np.repeat(np.arange(clients), per_client)
    clients_of_shards = generator(seed, "shards").permutation(hands)
    owners = np.empty(len(groups), dtype=np.int64)
    owners[by_label] = np.repeat(clients_of_shards, np.diff([0, *cuts, len(groups)]))
    return owners


def shard_cuts(sizes: npt.NDArray[np.int64], shards: int) -> list[int]:
    """Return after how many groups each shard but the last ends, ascending; no shard is empty.

    Parameters
    ----------
    sizes
        Images of each group in order, (G,), G at least ``shards``.
    """
    ends = np.concatenate([[0], np.cumsum(sizes)])
    cuts: list[int] = []
    for place, wanted in enumerate(np.cumsum(equal_sizes(int(ends[-1]), shards))[:-1]):
        after = int(np.searchsorted(ends, wanted))
        nearest = after - 1 if wanted - ends[after - 1] <= ends[after] - wanted else after
        first = cuts[-1] + 1 if cuts else 1
        cuts.append(min(max(nearest, first), len(sizes) - (shards - 1 - place)))
    return cuts
