"""EMNIST Balanced and Letters from idx files in torchvision's layout, or downloaded."""

import string
from collections.abc import Sequence
from pathlib import Path

from datasets.base import DataCard, ImageDataset, LoadOptions
from datasets.sources.downloads import Origin, locate
from datasets.sources.idx import read_split

_SOURCE = "Cohen et al. (arXiv 1702.05373), from NIST Special Database 19, https://www.nist.gov/itl"
_LICENCE = "none stated; NIST distributes it for free use"

BALANCED = DataCard(
    name="emnist-balanced",
    title="EMNIST Balanced",
    source=_SOURCE,
    licence=_LICENCE,
    # Lower-case letters that look like their capitals count as these ("merged").
    class_names=tuple(string.digits + string.ascii_uppercase + "abdefghnqrt"),
    mean=(0.1751,),
    std=(0.3332,),
)

LETTERS = DataCard(
    name="emnist-letters",
    title="EMNIST Letters",
    source=_SOURCE,
    licence=_LICENCE,
    class_names=tuple(string.ascii_uppercase),  # capital and small letter are one class
    mean=(0.1722,),
    std=(0.3309,),
)


def load_balanced(options: LoadOptions) -> ImageDataset:
    """Return EMNIST Balanced: 47 classes, 112,800 and 18,800 images. Roots and errors as :func:`_load`."""
    return _load(BALANCED, "balanced", range(len(BALANCED.class_names)), options)


def load_letters(options: LoadOptions) -> ImageDataset:
    """Return EMNIST Letters: 26 classes, which its files number from 1, 124,800 and 20,800 images."""
    return _load(LETTERS, "letters", range(1, len(LETTERS.class_names) + 1), options)


def _load(card: DataCard, split: str, codes: Sequence[int], options: LoadOptions) -> ImageDataset:
    """Return one of EMNIST's sets with upright images; the files hold rows and columns exchanged.

    ``None`` as root searches the standard places, then tries a download (535 MB for all sets together). The
    published test split is used, so the seed changes nothing.

    Raises
    ------
    DatasetNotFoundError
        If the four files are in no place; the message lists every place, and why the download failed.
    DatasetFormatError
        If a file is damaged.
    """
    origin = Origin(
        title=card.title,
        files=_files(split),
        folders=("EMNIST/raw", "raw", "gzip", "."),
        get_it=(
            f"Call `torchvision.datasets.EMNIST(FOLDER, split={split!r}, download=True)` where there is a "
            "network, or unpack NIST's gzip.zip, and set data.root to that FOLDER."
        ),
        address=_address,
        fetch=_fetch,
        compressed=True,
        fetched=(*_files("balanced"), *_files("letters")),
    )
    train_images, train_labels, test_images, test_labels = locate(origin, options.root)
    way_out = origin.get_it_again
    return ImageDataset(
        card,
        read_split(train_images, train_labels, card.class_names, way_out, codes, transposed=True),
        read_split(test_images, test_labels, card.class_names, way_out, codes, transposed=True),
    )


def _files(split: str) -> tuple[str, ...]:
    return tuple(
        f"emnist-{split}-{part}-{kind}-ubyte"
        for part in ("train", "test")
        for kind in ("images-idx3", "labels-idx1")
    )


def _address() -> str:
    # Imported here and below because it takes seconds that nobody with the files on disk need pay.
    from torchvision.datasets import EMNIST

    return str(EMNIST.url)


def _fetch(folder: Path) -> None:
    from torchvision.datasets import EMNIST

    EMNIST(folder, split="balanced", download=True)
