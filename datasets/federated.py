"""The data of a federated run: one data set in memory, and the ids that each client holds."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from datasets.base import DataCard, ImageDataset, ImageSplit, LoadOptions
from datasets.errors import DatasetNotFoundError
from datasets.partitions.long_tail import long_tail_ids
from datasets.partitions.natural import partition_by_site, partition_test_by_site
from datasets.partitions.partition import partition, partition_test
from datasets.registry import load_dataset

_RARE_PERCENT = 10


@dataclass(frozen=True)
class DataSpec:
    """Everything that decides a run's data; equal specs give equal data in every process."""

    name: str
    root: str
    """Folder of the data set; "" looks in the standard places."""
    clients: int
    partition: str
    alpha: float
    """Concentration of the Dirichlet partition; 0.01 to 1e6."""
    long_tail: str
    imbalance: float
    """Images of the most frequent label over images of the rarest; at least 1, below the mean class size."""
    seed: int
    rare_labels: tuple[int, ...] = ()
    """Partition "rare-holders": the labels that few clients hold."""
    rare_holders: int = 0
    """Partition "rare-holders": how many clients hold them."""
    image_size: int = 0
    """Side in pixels to which images are brought; 0 keeps the data set's own."""
    rgb: bool = False
    """Whether grayscale images are given three equal channels."""
    max_unreadable: float = 0.01
    """Largest share of the images, in [0, 1], that may be damaged and left out."""
    shards_per_client: int = 2
    """Partition "shards": pieces of the images sorted by label that each client holds."""


@dataclass(frozen=True, eq=False)
class FederatedData:
    """A data set dealt to clients. It is shared by all users in a process, so nothing in it is written to.

    Attributes
    ----------
    train, test
        The whole splits; ids below point into them, and no image is copied for a client.
    train_ids
        The training images of this run, (N,), after the long tail. Every view of the data uses these ids.
    pools
        Per client the ids of its training images, (N_k,), in pool order.
    test_pools
        Per client the ids of its test images; where clients are sites of the data set, one may have none.
    client_names
        Each client's name: its site's with the partition "natural", otherwise ``site-00``, ``site-01``, ...
    rare_labels
        The labels that few clients hold, where the partition says so; otherwise those with the least training
        images, see :func:`rare_labels`.
    """

    card: DataCard
    train: ImageSplit
    test: ImageSplit
    train_ids: npt.NDArray[np.int64]
    pools: tuple[npt.NDArray[np.int64], ...]
    test_pools: tuple[npt.NDArray[np.int64], ...]
    client_names: tuple[str, ...]
    rare_labels: tuple[int, ...]

    @property
    def num_classes(self) -> int:
        """Return the number of classes."""
        return len(self.card.class_names)

    def class_counts(self, client: int) -> npt.NDArray[np.int64]:
        """Return how many training images of each class a client holds, (C,)."""
        return np.bincount(self.train.labels[self.pools[client]], minlength=self.num_classes)


@lru_cache(maxsize=4)
def federate(spec: DataSpec) -> FederatedData:
    """Read the data set, keep a long tail of it and deal it to the clients; a process does so once per spec.

    Raises
    ------
    DataError
        If the data set is not found or damaged, or cannot be dealt as asked.
    """
    return deal(read_dataset(spec), spec)


def read_dataset(spec: DataSpec) -> ImageDataset:
    """Read the data set of a spec; raises DataError if it is not found or damaged."""
    root = _absolute_root(spec.root) if spec.root else None
    return load_dataset(
        spec.name, LoadOptions(root, spec.seed, spec.image_size, spec.rgb, spec.max_unreadable)
    )


def _absolute_root(root: str) -> Path:
    try:
        path = Path(root).expanduser() if root.startswith("~") else Path(root)
    except RuntimeError as error:
        raise DatasetNotFoundError(f"data.root = {root!r}: {error} Give an absolute path.") from None
    if not path.is_absolute():
        raise DatasetNotFoundError(
            f"data.root = {root!r} is relative. A run's working folder is one of Flower's, not the one in "
            f"which you typed `flwr run`; give an absolute path, such as {path.absolute()}."
        )
    return path


def deal(dataset: ImageDataset, spec: DataSpec) -> FederatedData:
    """Keep a long tail of a data set that was read and deal it to the clients.

    Raises
    ------
    PartitionError
        If it cannot be thinned out or dealt as asked.
    """
    labels, num_classes = dataset.train.labels, dataset.num_classes
    train_ids = long_tail_ids(labels, num_classes, spec.long_tail, spec.imbalance, spec.seed)
    chosen = spec.rare_labels if spec.partition == "rare-holders" else ()
    if spec.partition == "natural":
        dealt = partition_by_site(dataset, train_ids, spec.clients, spec.seed)
        test_pools = partition_test_by_site(dataset, spec.clients, spec.seed)
    else:
        dealt = partition(
            labels,
            train_ids,
            num_classes,
            spec.clients,
            spec.partition,
            spec.alpha,
            spec.seed,
            chosen,
            spec.rare_holders,
            shards_per_client=spec.shards_per_client,
            group_numbers=dataset.train_groups,
        )
        test_pools = partition_test(dataset.test.labels, dealt.shares, spec.seed, chosen)
    return FederatedData(
        card=dataset.card.for_profile(spec.long_tail),
        train=dataset.train,
        test=dataset.test,
        train_ids=train_ids,
        pools=dealt.pools,
        test_pools=test_pools,
        client_names=_client_names(dataset, spec),
        rare_labels=tuple(sorted(chosen)) or rare_labels(dealt.matrix.sum(axis=0)),
    )


def _client_names(dataset: ImageDataset, spec: DataSpec) -> tuple[str, ...]:
    if spec.partition == "natural" and dataset.sites is not None:
        return dataset.sites.names
    return tuple(f"site-{client:02d}" for client in range(spec.clients))


def rare_labels(counts: npt.NDArray[np.int64]) -> tuple[int, ...]:
    """Return the labels with the least training images, ascending.

    Labels are taken from the rarest up (ties: lower label first) as long as together they hold at most 10 %
    of all images, at least one label; none when all labels are equally frequent.

    Parameters
    ----------
    counts
        Training images of each label, (C,).
    """
    if (counts == counts[0]).all():
        return ()
    by_count = np.argsort(counts, kind="stable")
    within = 100 * np.cumsum(counts[by_count]) <= _RARE_PERCENT * counts.sum()
    return tuple(sorted(by_count[: max(1, int(within.sum()))].tolist()))
