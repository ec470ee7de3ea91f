"""The data sets by name. A new one is a file in ``sources/`` and a line here."""

import importlib
from collections.abc import Callable

from datasets.base import ImageDataset, LoadOptions
from datasets.errors import DatasetNotFoundError
from datasets.images.unify import unify
from datasets.names import unknown

DATASETS = {
    "digits": "digits.load",
    "fashion-mnist": "fashion_mnist.load",
    "cifar10": "cifar.load_cifar10",
    "cifar100": "cifar.load_cifar100",
    "emnist-balanced": "emnist.load_balanced",
    "emnist-letters": "emnist.load_letters",
    "octmnist": "med_mnist.load_octmnist",
    "dermamnist": "med_mnist.load_dermamnist",
    "elpv": "elpv.load",
    "ham10000": "ham10000.load",
    "isic2019": "isic2019.load",
    "image-folder": "image_folder.load",
}
"""For each name the module in ``sources/``, which is imported when it is asked for, and its function."""


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
        raise DatasetNotFoundError(unknown("data set", name, DATASETS))
    return unify(loader(name)(options), options)


def loader(name: str) -> Callable[[LoadOptions], ImageDataset]:
    """Return the function that reads a data set of :data:`DATASETS`."""
    module, function = DATASETS[name].split(".")
    load: Callable[[LoadOptions], ImageDataset] = getattr(
        importlib.import_module(f"datasets.sources.{module}"), function
    )
    return load
