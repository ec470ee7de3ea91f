"""OctMNIST and DermaMNIST: by medmnist's reader, in its layout, and what is wrong with its files."""

from pathlib import Path
from typing import Any

import medmnist
import numpy as np
import pytest
import torch
from torchvision.datasets.utils import calculate_md5

from datasets.base import LoadOptions
from datasets.errors import DatasetFormatError, DatasetNotFoundError
from datasets.registry import load_dataset
from datasets.sources import downloads, med_mnist
from tests.datasets.sources.test_fashion_mnist import Server

COUNTS = {"train": 14, "val": 7, "test": 8}


@pytest.fixture(autouse=True)
def _no_network(refusing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("octmnist", "dermamnist"):
        for suffix in ("", "_64", "_128", "_224"):
            monkeypatch.setitem(medmnist.INFO[name], f"url{suffix}", f"{refusing}{name}{suffix}.npz")


def arrays(name: str, size: int = 28) -> dict[str, np.ndarray]:
    classes, shape = {"octmnist": (4, (size, size)), "dermamnist": (7, (size, size, 3))}[name]
    rng = np.random.default_rng(size)
    content: dict[str, np.ndarray] = {}
    for split, count in COUNTS.items():
        content[f"{split}_images"] = rng.integers(0, 256, (count, *shape), dtype=np.uint8)
        content[f"{split}_labels"] = (np.arange(count)[:, None] % classes).astype(np.uint8)
    return content


def write(folder: Path, name: str, size: int = 28, **changed: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (f"{name}.npz" if size == 28 else f"{name}_{size}.npz")
    content = {key: value for key, value in (arrays(name, size) | changed).items() if value is not None}
    np.savez_compressed(path, **content)
    return path


@pytest.mark.parametrize(("name", "channels", "classes"), [("octmnist", 1, 4), ("dermamnist", 3, 7)])
def test_images_and_labels(tmp_path: Path, name: str, channels: int, classes: int) -> None:
    write(tmp_path, name)
    dataset = load_dataset(name, LoadOptions(tmp_path))
    raw = arrays(name)
    assert dataset.num_classes == classes
    for split, part in ((dataset.train, "train"), (dataset.test, "test")):
        images = raw[f"{part}_images"].reshape(-1, 28, 28, channels).transpose(0, 3, 1, 2)
        assert split.images.dtype == torch.uint8
        assert np.array_equal(split.images.numpy(), images)
        assert split.labels.dtype == np.int64
        assert np.array_equal(split.labels, raw[f"{part}_labels"][:, 0])


@pytest.mark.parametrize("card", [med_mnist.OCTMNIST, med_mnist.DERMAMNIST])
def test_cards_are_medmnists(card: Any) -> None:
    info = medmnist.INFO[card.name]
    assert list(card.class_names) == list(info["label"].values())
    assert card.licence == info["license"]
    assert len(card.mean) == len(card.std) == info["n_channels"]


@pytest.mark.parametrize(
    ("wanted", "published"),
    [(0, 28), (28, 28), (16, 28), (32, 64), (64, 64), (128, 128), (224, 224), (300, 224)],
)
def test_the_size_decides_the_file(wanted: int, published: int) -> None:
    assert med_mnist.published_size(wanted) == published


@pytest.mark.parametrize(("wanted", "read"), [(64, 64), (32, 64), (16, 28)])
def test_other_sizes_are_made_from_a_larger_file(tmp_path: Path, wanted: int, read: int) -> None:
    write(tmp_path, "octmnist", read)
    images = load_dataset("octmnist", LoadOptions(tmp_path, image_size=wanted)).train.images
    assert images.shape == (14, 1, wanted, wanted)
    if wanted == read:
        assert np.array_equal(images[:, 0].numpy(), arrays("octmnist", read)["train_images"])


@pytest.mark.parametrize(
    ("changed", "parts"),
    [
        (
            {"test_labels": None},
            ["no test_images or test_labels among train_images, train_labels, val_images"],
        ),
        (
            {"train_images": None, "x": [1]},
            ["no train_images or train_labels among train_labels, val_images"],
        ),
        (
            {"train_images": np.zeros((14, 28, 28, 3), np.uint8)},
            ["train images", "(14, 28, 28, 3)", "(N, 28, 28)"],
        ),
        ({"test_images": np.zeros((8, 28, 28))}, ["test images of type float64", "expected uint8"]),
        ({"test_labels": np.zeros((7, 1), np.uint8)}, ["7 test labels", "each of the 8 images"]),
        (
            {"train_labels": np.array([[0]] * 13 + [[4]])},
            ["(train_labels): found label 4 at position 13", "labels 0 to 3"],
        ),
        ({"test_labels": np.ones((8, 4), np.uint8)}, ["(test_labels): found 4 labels", "multi-label"]),
        (
            {"test_labels": np.array([0, 1, 2, 3] * 2, dtype=object)},
            ["unreadable data", "allow_pickle=False"],
        ),
    ],
)
def test_wrong_contents(tmp_path: Path, changed: dict[str, Any], parts: list[str]) -> None:
    path = write(tmp_path, "octmnist", **changed)
    with pytest.raises(DatasetFormatError) as failure:
        med_mnist.load_octmnist(LoadOptions(tmp_path))
    message = str(failure.value)
    assert message.startswith(str(path))
    for part in [*parts, "Remove the file and get the data set again. Call `medmnist.OCTMNIST("]:
        assert part in message


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[: len(content) // 2],
        lambda content: content[:300] + bytes(byte ^ 0xFF for byte in content[300:600]) + content[600:],
        lambda content: b"this was an error page of a server",
        lambda content: b"",
    ],
    ids=["half of it", "bits flipped", "no zip", "empty"],
)
def test_damaged_files(tmp_path: Path, damage: Any) -> None:
    path = write(tmp_path, "dermamnist")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(
        DatasetFormatError, match=rf"^{path}: found unreadable data .*a whole npz file\. Remove"
    ):
        med_mnist.load_dermamnist(LoadOptions(tmp_path))


def test_medmnists_own_folder_is_a_standard_place(home: Path) -> None:
    write(home / ".medmnist", "dermamnist")
    assert len(med_mnist.load_dermamnist(LoadOptions()).test) == 8


def test_nothing_found_is_one_error(home: Path) -> None:
    with pytest.raises(DatasetNotFoundError) as failure:
        med_mnist.load_octmnist(LoadOptions(image_size=64))
    lines = str(failure.value).splitlines()
    assert lines[0] == "OctMNIST (64x64 pixels) was not found. Looked in"
    assert any(line.startswith(f"  {home / '.medmnist'}: ") for line in lines)
    assert "download to" in lines[-2]
    assert "refused" in lines[-2]
    assert lines[-1].startswith(
        "Call `medmnist.OCTMNIST(split='train', download=True, size=64, root=FOLDER)`"
    )


def test_a_given_root_is_the_only_place(home: Path, tmp_path: Path) -> None:
    write(home / ".medmnist", "octmnist")
    with pytest.raises(DatasetNotFoundError, match=r"lacks octmnist\.npz") as failure:
        med_mnist.load_octmnist(LoadOptions(tmp_path))
    assert "download to" not in str(failure.value)


@pytest.mark.parametrize("whole", [True, False])
def test_download(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serving: Server, whole: bool
) -> None:
    path = write(tmp_path / "mirror", "octmnist", 64)
    monkeypatch.setitem(medmnist.INFO["octmnist"], "MD5_64", calculate_md5(path))
    if not whole:
        path.write_bytes(path.read_bytes()[:-9])
    with serving(path.parent) as url:
        monkeypatch.setitem(medmnist.INFO["octmnist"], "url_64", f"{url}{path.name}?download=1")
        if whole:
            assert len(med_mnist.load_octmnist(LoadOptions(image_size=64)).train) == 14
        else:
            with pytest.raises(DatasetNotFoundError, match=r"download to .*corrupted"):
                med_mnist.load_octmnist(LoadOptions(image_size=64))
    left = [file.name for file in downloads.download_place().iterdir()]
    assert left == (["octmnist_64.npz"] if whole else [])
