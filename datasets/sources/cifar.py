"""CIFAR-10 and CIFAR-100 (fine labels) by torchvision's reader, from its folders, or downloaded."""

from pathlib import Path
from typing import Any

import torch

from datasets.base import DataCard, ImageDataset, ImageSplit, LoadOptions
from datasets.errors import DatasetFormatError
from datasets.sources.downloads import Origin, locate
from datasets.sources.labels import unify_labels

_SOURCE = "Krizhevsky, Learning Multiple Layers of Features from Tiny Images (2009), https://www.cs.toronto.edu/~kriz"
_LICENCE = "none stated; its authors ask to be cited"
_IMAGENET_MEAN, _IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

CIFAR10 = DataCard(
    name="cifar10",
    title="CIFAR-10",
    source=_SOURCE,
    licence=_LICENCE,
    class_names=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    mean=_IMAGENET_MEAN,  # those of ImageNet, as in FairFAL's experiments
    std=_IMAGENET_STD,
)

_FINE_LABELS = """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly
    camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile
    cup dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp
    lawn_mower leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom
    oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
    possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake
    spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor
    train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""

CIFAR100 = DataCard(
    name="cifar100",
    title="CIFAR-100",
    source=_SOURCE,
    licence=_LICENCE,
    class_names=tuple(_FINE_LABELS.split()),
    mean=(0.507, 0.487, 0.441),
    std=(0.267, 0.256, 0.276),
    long_tail=(_IMAGENET_MEAN, _IMAGENET_STD),  # as in FairFAL's experiments
)


def load_cifar10(options: LoadOptions) -> ImageDataset:
    """Return CIFAR-10: 50,000 and 10,000 images of 10 classes. Roots and errors as :func:`_load`."""
    files = (*(f"data_batch_{batch}" for batch in range(1, 6)), "test_batch", "batches.meta")
    return _load(CIFAR10, "CIFAR10", "cifar-10-batches-py", files, options)


def load_cifar100(options: LoadOptions) -> ImageDataset:
    """Return CIFAR-100: 50,000 and 10,000 images of 100 classes. Roots and errors as :func:`_load`."""
    return _load(CIFAR100, "CIFAR100", "cifar-100-python", ("train", "test", "meta"), options)


def _load(
    card: DataCard, reader_name: str, folder: str, files: tuple[str, ...], options: LoadOptions
) -> ImageDataset:
    """Return one of the two sets by torchvision's reader, which unpickles files of the right checksum only.

    ``None`` as root searches the standard places, then tries a download; a root is torchvision's folder or
    the one that holds it. The published test split is used, so the seed changes nothing.

    Raises
    ------
    DatasetNotFoundError
        If a file is in no place; the message lists every place, and why the download failed.
    DatasetFormatError
        If a file is damaged.
    """

    root = options.root.parent if options.root and options.root.name == folder else options.root
    archive = f"{folder.removesuffix('-batches-py').removesuffix('-python')}-python.tar.gz"

    def reader() -> Any:
        # Imported late because it takes seconds that a run with other data need not pay.
        import torchvision

        return getattr(torchvision.datasets, reader_name)

    def fetch(place: Path) -> None:
        reader()(place, download=True)

    origin = Origin(
        title=card.title,
        files=files,
        folders=(folder,),
        get_it=(
            f"Call `torchvision.datasets.{reader_name}(FOLDER, download=True)` where there is a network, or "
            f"unpack {archive}, and set data.root to the FOLDER that holds {folder}."
        ),
        address=lambda: str(reader().url),
        fetch=fetch,
    )
    paths = locate(origin, root)
    return ImageDataset(
        card,
        _read_split(reader(), paths, True, card, origin.get_it_again),
        _read_split(reader(), paths, False, card, origin.get_it_again),
    )


def _read_split(reader: Any, paths: list[Path], train: bool, card: DataCard, way_out: str) -> ImageSplit:
    folder = paths[0].parent
    try:
        split = reader(folder.parent, train=train)
    except (OSError, RuntimeError) as error:
        raise DatasetFormatError(f"{_damage(reader, folder) or error}. {way_out}") from error
    images = torch.from_numpy(split.data).permute(0, 3, 1, 2).contiguous()
    labels = unify_labels(split.targets, str(folder), card.class_names, way_out=way_out)
    return ImageSplit(images, labels.values)


def _damage(reader: Any, folder: Path) -> str | None:
    """Return what is wrong with the first file that torchvision refuses."""
    from torchvision.datasets.utils import calculate_md5

    for name, expected in (
        *reader.train_list,
        *reader.test_list,
        (reader.meta["filename"], reader.meta["md5"]),
    ):
        try:
            found = calculate_md5(folder / name)
        except OSError as error:
            return f"{folder / name}: found unreadable data ({error}), expected a file of the published set"
        if found != expected:
            return f"{folder / name}: found the MD5 checksum {found}, expected {expected}"
    return None
