"""The data sets by name. A new one is a file in ``sources/`` and a line here."""

import difflib
from collections.abc import Callable

from datasets.base import ImageDataset, LoadOptions
from datasets.errors import DatasetNotFoundError
from datasets.sources import digits, fashion_mnist, ham10000, image_folder, isic2019

DATASETS: dict[str, Callable[[LoadOptions], ImageDataset]] = {
    digits.CARD.name: digits.load,
    fashion_mnist.CARD.name: fashion_mnist.load,
    ham10000.NAME: ham10000.load,
    isic2019.NAME: isic2019.load,
    image_folder.NAME: image_folder.load,
}


def load_dataset(name: str, options: LoadOptions) -> ImageDataset:
    """Read a data set.

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
    return DATASETS[name](options)
