"""CIFAR-10 and CIFAR-100: by torchvision's reader, and what it refuses."""

import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision
from torchvision.datasets.utils import calculate_md5

from datasets.base import LoadOptions
from datasets.errors import DatasetFormatError, DatasetNotFoundError
from datasets.sources import cifar
from tests.datasets.sources.test_fashion_mnist import Server

FOLDERS = {"cifar10": "cifar-10-batches-py", "cifar100": "cifar-100-python"}
READERS = {"cifar10": torchvision.datasets.CIFAR10, "cifar100": torchvision.datasets.CIFAR100}
LOADERS = {"cifar10": cifar.load_cifar10, "cifar100": cifar.load_cifar100}
LABELS_KEY = {"cifar10": "labels", "cifar100": "fine_labels"}
both = pytest.mark.parametrize("name", list(FOLDERS))


@pytest.fixture(autouse=True)
def _no_network(refusing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, reader in READERS.items():
        monkeypatch.setattr(reader, "url", f"{refusing}{name}.tar.gz")


def batch(name: str, file: str) -> dict[str, object]:
    """Return three images, the rows of red, green and blue pixels one after the other, as published."""
    rng = np.random.default_rng(list(file.encode()))
    labels = rng.integers(0, len(LOADERS) * 5, 3).tolist()
    return {"data": rng.integers(0, 256, (3, 3072), dtype=np.uint8), LABELS_KEY[name]: labels}


def write(root: Path, name: str, monkeypatch: pytest.MonkeyPatch, **changed: dict[str, object]) -> Path:
    """Write a small set in the published layout and make torchvision expect its checksums."""
    folder, reader = root / FOLDERS[name], READERS[name]
    folder.mkdir(parents=True)
    for files in ("train_list", "test_list"):
        for file, _ in getattr(reader, files):
            (folder / file).write_bytes(pickle.dumps(batch(name, file) | changed.get(file, {})))
        checksums = [[file, calculate_md5(folder / file)] for file, _ in getattr(reader, files)]
        monkeypatch.setattr(reader, files, checksums)
    meta = folder / reader.meta["filename"]
    meta.write_bytes(pickle.dumps({reader.meta["key"]: ["unused"]}))
    monkeypatch.setattr(reader, "meta", reader.meta | {"md5": calculate_md5(meta)})
    return folder


@both
@pytest.mark.parametrize("root", [".", "the folder itself"])
def test_images_and_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, root: str) -> None:
    folder = write(tmp_path, name, monkeypatch)
    dataset = LOADERS[name](LoadOptions(tmp_path if root == "." else folder))
    for split, files in ((dataset.train, "train_list"), (dataset.test, "test_list")):
        batches = [batch(name, file) for file, _ in getattr(READERS[name], files)]
        pixels = np.concatenate([each["data"] for each in batches]).reshape(-1, 3, 32, 32)
        assert split.images.dtype == torch.uint8
        assert split.images.is_contiguous()
        assert np.array_equal(split.images.numpy(), pixels)
        assert split.labels.dtype == np.int64
        assert split.labels.tolist() == [x for each in batches for x in each[LABELS_KEY[name]]]


def test_class_names() -> None:
    assert len(cifar.CIFAR10.class_names) == 10
    # The fine labels are in alphabetical order.
    assert list(cifar.CIFAR100.class_names) == sorted(set(cifar.CIFAR100.class_names))
    assert len(cifar.CIFAR100.class_names) == 100
    assert [cifar.CIFAR100.class_names[i] for i in (0, 49, 99)] == ["apple", "mountain", "worm"]


@both
def test_a_wrong_checksum_names_the_file_and_nothing_is_unpickled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder = write(tmp_path, name, monkeypatch)
    file, checksum = READERS[name].train_list[-1]

    class Trap:
        def __reduce__(self) -> tuple[object, ...]:
            return Path.touch, (tmp_path / "ran",)

    (folder / file).write_bytes(pickle.dumps(Trap()))
    found = calculate_md5(folder / file)
    with pytest.raises(DatasetFormatError) as failure:
        LOADERS[name](LoadOptions(tmp_path))
    message = str(failure.value)
    assert f"{folder / file}: found the MD5 checksum {found}, expected {checksum}. Remove the file" in message
    assert f"torchvision.datasets.{READERS[name].__name__}(FOLDER, download=True)" in message
    assert not (tmp_path / "ran").exists()


def test_a_damaged_file_of_class_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path, "cifar10", monkeypatch)
    (folder / "batches.meta").write_bytes(b"")
    with pytest.raises(DatasetFormatError, match=r"batches\.meta: found the MD5 checksum d41d8cd9"):
        cifar.load_cifar10(LoadOptions(tmp_path))


def test_an_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path, "cifar10", monkeypatch)

    def refuse(path: Path, *_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(torchvision.datasets.utils, "calculate_md5", refuse)
    with pytest.raises(DatasetFormatError, match=rf"{folder}/data_batch_1: found unreadable data .*denied"):
        cifar.load_cifar10(LoadOptions(tmp_path))


def test_label_out_of_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "cifar10", monkeypatch, test_batch={"labels": [0, 9, 10]})
    with pytest.raises(DatasetFormatError, match="found label 10 at position 2, expected labels 0 to 9"):
        cifar.load_cifar10(LoadOptions(tmp_path))


def test_a_missing_file_in_a_given_root(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (write(tmp_path, "cifar10", monkeypatch) / "data_batch_3").unlink()
    with pytest.raises(DatasetNotFoundError) as failure:
        cifar.load_cifar10(LoadOptions(tmp_path))
    message = str(failure.value)
    assert f"{tmp_path / FOLDERS['cifar10']}: lacks data_batch_3\n" in message
    assert "unpack cifar-10-python.tar.gz, and set data.root to the FOLDER that holds" in message
    assert "download to" not in message


def test_nothing_found_is_one_error(home: Path) -> None:
    with pytest.raises(DatasetNotFoundError, match=r"(?s)^CIFAR-100 was not found.*download to .*refused"):
        cifar.load_cifar100(LoadOptions())


def test_download(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serving: Server) -> None:
    folder = write(tmp_path, "cifar100", monkeypatch)
    archive = tmp_path / "mirror" / "cifar-100-python.tar.gz"
    archive.parent.mkdir()
    with tarfile.open(archive, "w:gz") as file:
        file.add(folder, folder.name)
    monkeypatch.setattr(READERS["cifar100"], "tgz_md5", calculate_md5(archive))
    with serving(archive.parent) as url:
        monkeypatch.setattr(READERS["cifar100"], "url", url + archive.name)
        assert len(cifar.load_cifar100(LoadOptions()).train) == 3
    assert len(cifar.load_cifar100(LoadOptions()).test) == 3
