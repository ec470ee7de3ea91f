"""The data sets by name. A new one is a file in ``sources/`` and a line here."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass

from datasets.base import ImageDataset, LoadOptions
from datasets.errors import DatasetNotFoundError
from datasets.images.unify import unify
from datasets.names import unknown


@dataclass(frozen=True)
class Source:
    """One data set: its module and function in ``sources/``, imported when asked for, and what it is."""

    load: str
    help: str


DATASETS = {
    "digits": Source("digits.load", "1,797 handwritten digits of 16x16 pixels, which need no download"),
    "fashion-mnist": Source("fashion_mnist.load", "70,000 gray pictures of 10 kinds of clothes, 28x28"),
    "cifar10": Source("cifar.load_cifar10", "60,000 colour pictures of 10 animals and vehicles, 32x32"),
    "cifar100": Source("cifar.load_cifar100", "60,000 colour pictures of 100 kinds of things, 32x32"),
    "emnist-balanced": Source("emnist.load_balanced", "131,600 handwritten letters and digits, 47 classes"),
    "emnist-letters": Source("emnist.load_letters", "145,600 handwritten letters, 26 classes, 28x28"),
    "octmnist": Source(
        "med_mnist.load_octmnist", "retinal scans, 97,477 to train on, 4 classes, 28x28 to 224"
    ),
    "dermamnist": Source(
        "med_mnist.load_dermamnist", "skin lesions, 7,007 to train on, 7 classes, 28 to 224"
    ),
    "elpv": Source("elpv.load", "2,624 pictures of solar cells in 4 grades, functional to defective"),
    "ham10000": Source("ham10000.load", "10,015 skin lesion images of 4 sites, 7 classes"),
    "isic2019": Source("isic2019.load", "25,331 skin lesion images of 6 centres, 8 classes"),
    "image-folder": Source(
        "image_folder.load", "your own images: a folder for each class, or site and class"
    ),
}
"""Every data set by the name that the run config uses."""


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
    module, function = DATASETS[name].load.split(".")
    load: Callable[[LoadOptions], ImageDataset] = getattr(
        importlib.import_module(f"datasets.sources.{module}"), function
    )
    return load
