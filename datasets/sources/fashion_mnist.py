"""Fashion-MNIST from idx files in torchvision's layout, from Debian's package, or downloaded."""

from pathlib import Path

from datasets.base import DataCard, ImageDataset, LoadOptions
from datasets.sources.downloads import Origin, locate
from datasets.sources.idx import read_split

CARD = DataCard(
    name="fashion-mnist",
    title="Fashion-MNIST",
    source="Zalando Research (arXiv 1708.07747), https://github.com/zalandoresearch/fashion-mnist",
    licence="MIT",
    class_names=(
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    ),
    mean=(0.286,),
    std=(0.353,),
)

DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")

_FILES = tuple(
    f"{split}-{kind}-ubyte" for split in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")
)
_GET_IT = (
    "Install the Debian package `dataset-fashion-mnist`, or call "
    "`torchvision.datasets.FashionMNIST(FOLDER, download=True)` where there is a network, "
    "and set data.root to that FOLDER."
)


def load(options: LoadOptions) -> ImageDataset:
    """Return Fashion-MNIST; ``None`` as root searches the standard places, then tries a download.

    The published test split is used, so the seed changes nothing.

    Raises
    ------
    DatasetNotFoundError
        If the four files are in no place; the message lists every place, and why the download failed.
    DatasetFormatError
        If a file is damaged.
    """
    origin = Origin(
        title=CARD.title,
        files=_FILES,
        folders=("FashionMNIST/raw", "raw", "."),
        get_it=_GET_IT,
        address=_address,
        fetch=_fetch,
        more_places=(DEBIAN_FOLDER,),
        compressed=True,
    )
    train_images, train_labels, test_images, test_labels = locate(origin, options.root)
    return ImageDataset(
        CARD,
        read_split(train_images, train_labels, CARD.class_names, origin.get_it_again),
        read_split(test_images, test_labels, CARD.class_names, origin.get_it_again),
    )


def _address() -> str:
    # Imported here and below because it takes seconds that nobody with the files on disk need pay.
    from torchvision.datasets import FashionMNIST

    return str(FashionMNIST.mirrors[0] + FashionMNIST.resources[0][0])


def _fetch(folder: Path) -> None:
    from torchvision.datasets import FashionMNIST

    FashionMNIST(folder, train=False, download=True)
