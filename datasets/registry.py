"""The data sets by name. A new one is a file in ``sources/`` and a line here."""

import difflib
from collections.abc import Callable

from datasets.base import ImageDataset, LoadOptions
from datasets.errors import DatasetNotFoundError
from datasets.sources import (
    cifar,
    digits,
    elpv,
    emnist,
    fashion_mnist,
    ham10000,
    image_folder,
    isic2019,
    med_mnist,
)
from datasets.unify import unify

DATASETS: dict[str, Callable[[LoadOptions], ImageDataset]] = {
    digits.CARD.name: digits.load,
    fashion_mnist.CARD.name: fashion_mnist.load,
    cifar.CIFAR10.name: cifar.load_cifar10,
    cifar.CIFAR100.name: cifar.load_cifar100,
    emnist.BALANCED.name: emnist.load_balanced,
    emnist.LETTERS.name: emnist.load_letters,
    med_mnist.OCTMNIST.name: med_mnist.load_octmnist,
    med_mnist.DERMAMNIST.name: med_mnist.load_dermamnist,
    elpv.DESCRIPTION.name: elpv.load,
    ham10000.NAME: ham10000.load,
    isic2019.NAME: isic2019.load,
    image_folder.NAME: image_folder.load,
}


def load_dataset(name: str, options: LoadOptions) -> ImageDataset:
    """Read a data set, with images of the size and the channels that the options ask for.

    Raises
    ------
    DatasetNotFoundError
        If there is no data set of that name, or its files are not found.
    DatasetFormatError
        If its files are damaged.
    ImageCacheError
        If its decoded images cannot be kept.
    """
    if name not in DATASETS:
        near = difflib.get_close_matches(name.lower(), DATASETS, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise DatasetNotFoundError(f"No data set is called {name!r}; there are {', '.join(DATASETS)}.{hint}")
    return unify(DATASETS[name](options), options)
