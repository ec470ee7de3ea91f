"""Fashion-MNIST: where its files are found, and what is wrong with them."""

import gzip
import hashlib
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision

from datasets.base import LoadOptions
from datasets.errors import DatasetFormatError, DatasetNotFoundError
from datasets.sources import downloads, fashion_mnist

Writer = Callable[..., Path]
Server = Callable[[Path], AbstractContextManager[str]]
GET_IT = r"dataset-fashion-mnist.*torchvision\.datasets\.FashionMNIST"


@pytest.fixture(autouse=True)
def _no_network(refusing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torchvision.datasets.FashionMNIST, "mirrors", [refusing])


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("layout", ["", "raw", "FashionMNIST/raw"])
def test_layouts(
    tmp_path: Path,
    write_fashion_mnist: Writer,
    tiny_arrays: dict[str, np.ndarray],
    layout: str,
    compressed: bool,
) -> None:
    write_fashion_mnist(tmp_path / layout, compressed)
    dataset = fashion_mnist.load(LoadOptions(tmp_path))
    assert dataset.card is fashion_mnist.CARD
    assert dataset.num_classes == 10
    for split, prefix in ((dataset.train, "train"), (dataset.test, "t10k")):
        assert split.images.dtype == torch.uint8
        assert split.labels.dtype == np.int64
        assert np.array_equal(split.images[:, 0].numpy(), tiny_arrays[f"{prefix}-images-idx3-ubyte"])
        assert np.array_equal(split.labels, tiny_arrays[f"{prefix}-labels-idx1-ubyte"])


def test_torchvision_reads_the_same_images(tmp_path: Path, write_fashion_mnist: Writer) -> None:
    write_fashion_mnist(tmp_path / "FashionMNIST" / "raw")
    theirs = torchvision.datasets.FashionMNIST(tmp_path, train=True)
    ours = fashion_mnist.load(LoadOptions(tmp_path)).train
    assert torch.equal(ours.images[:, 0], theirs.data)
    assert ours.labels.tolist() == theirs.targets.tolist()


def test_class_names_are_torchvisions() -> None:
    assert list(fashion_mnist.CARD.class_names) == torchvision.datasets.FashionMNIST.classes


@pytest.mark.parametrize(
    "place",
    [
        "XDG_DATA_HOME/rarefl/datasets/FashionMNIST/raw",
        "XDG_CACHE_HOME/rarefl/datasets/FashionMNIST/raw",
        "debian",
    ],
)
def test_standard_places(home: Path, write_fashion_mnist: Writer, place: str) -> None:
    write_fashion_mnist(home / place, compressed=place == "debian")
    assert len(fashion_mnist.load(LoadOptions(seed=0)).train) == 60


def test_nothing_found_is_one_error_that_lists_every_place(home: Path, write_fashion_mnist: Writer) -> None:
    (write_fashion_mnist(home / "debian") / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(DatasetNotFoundError) as failure:
        fashion_mnist.load(LoadOptions(seed=0))
    lines = str(failure.value).splitlines()
    assert str(home / "XDG_DATA_HOME/rarefl/datasets") in lines[1]
    assert str(home / "XDG_CACHE_HOME/rarefl/datasets") in lines[2]
    assert lines[3].endswith("debian: lacks t10k-labels-idx1-ubyte (plain or .gz)")
    assert "download" in lines[4]
    assert "refused" in lines[4]
    assert "dataset-fashion-mnist" in lines[5]


def test_a_given_root_is_the_only_place(home: Path, tmp_path: Path, write_fashion_mnist: Writer) -> None:
    write_fashion_mnist(home / "debian")
    with pytest.raises(DatasetNotFoundError, match=rf"(?s)elsewhere: no such folder.*{GET_IT}") as failure:
        fashion_mnist.load(LoadOptions(tmp_path / "elsewhere"))
    assert "download to" not in str(failure.value)


def offer(monkeypatch: pytest.MonkeyPatch, url: str, folder: Path) -> None:
    resources = [
        (path.name, hashlib.md5(path.read_bytes()).hexdigest()) for path in sorted(folder.glob("*.gz"))
    ]
    monkeypatch.setattr(torchvision.datasets.FashionMNIST, "mirrors", [url])
    monkeypatch.setattr(torchvision.datasets.FashionMNIST, "resources", resources)


def test_download(
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    write_fashion_mnist: Writer,
    serving: Server,
) -> None:
    mirror = write_fashion_mnist(tmp_path / "mirror", compressed=True)
    with serving(mirror) as url:
        offer(monkeypatch, url, mirror)
        assert len(fashion_mnist.load(LoadOptions(seed=0)).train) == 60
    assert socket.getdefaulttimeout() is None
    assert [path.name for path in downloads.download_place().iterdir()] == ["FashionMNIST"]
    # The server is gone: a second load finds the files.
    assert len(fashion_mnist.load(LoadOptions(seed=0)).test) == 20


def test_download_that_breaks_leaves_nothing_behind(
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    write_fashion_mnist: Writer,
    serving: Server,
) -> None:
    mirror = write_fashion_mnist(tmp_path / "mirror", compressed=True)
    with serving(mirror) as url:
        offer(monkeypatch, url, mirror)
        (mirror / "train-labels-idx1-ubyte.gz").write_bytes(b"changed after its checksum was taken")
        with pytest.raises(DatasetNotFoundError, match=r"download to .*corrupted"):
            fashion_mnist.load(LoadOptions(seed=0))
    assert list(downloads.download_place().rglob("*")) == []


def test_a_server_that_never_answers_is_given_up(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "NETWORK_PATIENCE", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        monkeypatch.setattr(torchvision.datasets.FashionMNIST, "mirrors", [url])
        with pytest.raises(DatasetNotFoundError, match=r"download to .*(timed out|no answer within 0\.2 s)"):
            fashion_mnist.load(LoadOptions(seed=0))


def expect_format_error(root: Path, file: str, found: str, expected: str) -> None:
    with pytest.raises(DatasetFormatError) as failure:
        fashion_mnist.load(LoadOptions(root))
    message = str(failure.value)
    assert message.startswith(f"{root / file}: found {found}")
    assert f"expected {expected}" in message
    assert "Remove the file and get the data set again." in message
    assert "dataset-fashion-mnist" in message


@pytest.mark.parametrize("cut", [1, 28 * 28, 60 * 28 * 28])
def test_truncated_images(tmp_path: Path, write_fashion_mnist: Writer, cut: int) -> None:
    path = write_fashion_mnist(tmp_path) / "train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:-cut])
    expect_format_error(tmp_path, path.name, f"{60 * 784 - cut} bytes of data", "47040 (60 x 28 x 28, as")


@pytest.mark.parametrize("size", [0, 7])
def test_truncated_header(tmp_path: Path, write_fashion_mnist: Writer, size: int) -> None:
    path = write_fashion_mnist(tmp_path) / "t10k-labels-idx1-ubyte"
    path.write_bytes(path.read_bytes()[:size])
    expect_format_error(tmp_path, path.name, f"{size} bytes", "a header of 8 bytes")


def test_surplus_bytes(tmp_path: Path, write_fashion_mnist: Writer) -> None:
    path = write_fashion_mnist(tmp_path) / "train-labels-idx1-ubyte"
    path.write_bytes(path.read_bytes() + b"!")
    expect_format_error(tmp_path, path.name, "61 bytes of data", "60 (60, as its header says)")


def test_wrong_magic_number(tmp_path: Path, write_fashion_mnist: Writer) -> None:
    write_fashion_mnist(tmp_path)
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(b"\x00\x00\x0d\x03" + path.read_bytes()[4:])
    expect_format_error(tmp_path, path.name, "magic number 0x00000d03", "0x00000803")


def test_labels_in_place_of_images(tmp_path: Path, write_fashion_mnist: Writer) -> None:
    write_fashion_mnist(tmp_path)
    labels = (tmp_path / "train-labels-idx1-ubyte").read_bytes()
    (tmp_path / "train-images-idx3-ubyte").write_bytes(labels)
    expect_format_error(tmp_path, "train-images-idx3-ubyte", "magic number 0x00000801", "0x00000803")


def test_wrong_image_shape(tmp_path: Path, write_fashion_mnist: Writer) -> None:
    write_fashion_mnist(tmp_path, t10k_images=np.zeros((20, 32, 28)))
    expect_format_error(tmp_path, "t10k-images-idx3-ubyte", "images of 32x28 pixels", "28x28")


def test_label_out_of_range(tmp_path: Path, write_fashion_mnist: Writer) -> None:
    labels = np.zeros(60, dtype=int)
    labels[41] = 10
    write_fashion_mnist(tmp_path, train_labels=labels)
    expect_format_error(tmp_path, "train-labels-idx1-ubyte", "label 10 at position 41", "labels 0 to 9")


@pytest.mark.parametrize("count", [0, 59])
def test_images_without_labels(tmp_path: Path, write_fashion_mnist: Writer, count: int) -> None:
    write_fashion_mnist(tmp_path, train_labels=np.zeros(count))
    expect_format_error(
        tmp_path, "train-labels-idx1-ubyte", f"{count} labels", "one for each of the 60 images"
    )


def test_no_images_at_all(tmp_path: Path, write_fashion_mnist: Writer) -> None:
    write_fashion_mnist(tmp_path, t10k_images=np.zeros((0, 28, 28)), t10k_labels=np.zeros(0))
    expect_format_error(tmp_path, "t10k-labels-idx1-ubyte", "0 labels", "one for each of the 0 images")


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"this was an error page of a server",
        lambda content: content[: len(content) // 2],
        lambda content: content[:-8] + b"\x00" * 8,
        lambda content: content[:40] + bytes(byte ^ 0xFF for byte in content[40:60]) + content[60:],
        lambda content: gzip.compress(b"")[:-4],
    ],
    ids=["not gzip", "half of it", "wrong checksum", "bits flipped", "cut in the trailer"],
)
def test_damaged_gzip(tmp_path: Path, write_fashion_mnist: Writer, damage: Callable[[bytes], bytes]) -> None:
    path = write_fashion_mnist(tmp_path, compressed=True) / "train-images-idx3-ubyte.gz"
    path.write_bytes(damage(path.read_bytes()))
    expect_format_error(tmp_path, path.name, "unreadable data", "a whole idx file")
