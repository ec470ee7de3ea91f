"""EMNIST: numbering, orientation, places and faults of its files."""

import gzip
import string
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest
import torchvision
from torchvision.datasets.utils import calculate_md5

from datasets.base import LoadOptions
from datasets.errors import DatasetFormatError, DatasetNotFoundError
from datasets.sources import downloads, emnist
from tests.datasets.conftest import idx_bytes
from tests.datasets.sources.test_fashion_mnist import Server

LOADERS = {"balanced": emnist.load_balanced, "letters": emnist.load_letters}
FIRST = {"balanced": 0, "letters": 1}
CLASSES = {"balanced": 47, "letters": 26}


@pytest.fixture(autouse=True)
def _no_network(refusing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torchvision.datasets.EMNIST, "url", f"{refusing}gzip.zip")


def arrays(split: str) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    codes = np.arange(CLASSES[split]) + FIRST[split]
    return {
        f"emnist-{split}-train-images-idx3-ubyte": rng.integers(0, 256, (2 * len(codes), 28, 28)),
        f"emnist-{split}-train-labels-idx1-ubyte": np.tile(codes, 2),
        f"emnist-{split}-test-images-idx3-ubyte": rng.integers(0, 256, (len(codes), 28, 28)),
        f"emnist-{split}-test-labels-idx1-ubyte": codes[::-1],
    }


def write(folder: Path, split: str, compressed: bool = False, **other: np.ndarray) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in arrays(split).items():
        content = idx_bytes(other.get("_".join(name.split("-")[2:4]), array))
        path = folder / (f"{name}.gz" if compressed else name)
        path.write_bytes(gzip.compress(content) if compressed else content)
    return folder


@pytest.mark.parametrize("split", ["balanced", "letters"])
@pytest.mark.parametrize(("layout", "compressed"), [("EMNIST/raw", False), ("gzip", True), ("", False)])
def test_images_are_upright_and_labels_start_at_0(
    tmp_path: Path, split: str, layout: str, compressed: bool
) -> None:
    write(tmp_path / layout, split, compressed)
    dataset = LOADERS[split](LoadOptions(tmp_path))
    raw = arrays(split)
    for loaded, part in ((dataset.train, "train"), (dataset.test, "test")):
        images = raw[f"emnist-{split}-{part}-images-idx3-ubyte"]
        assert loaded.images.shape == (len(images), 1, 28, 28)
        assert loaded.images.is_contiguous()
        assert np.array_equal(loaded.images[:, 0].numpy(), images.transpose(0, 2, 1))
        labels = raw[f"emnist-{split}-{part}-labels-idx1-ubyte"] - FIRST[split]
        assert loaded.labels.dtype == np.int64
        assert np.array_equal(loaded.labels, labels)
    assert dataset.num_classes == CLASSES[split]


def test_an_l_reads_as_an_l(tmp_path: Path) -> None:
    """The files hold column after column: the first 28 bytes of an L are its stem."""
    column_by_column = np.zeros((1, 28, 28), dtype=np.uint8)
    column_by_column[0, 0, :] = 255  # the stem, on the left
    column_by_column[0, :, 27] = 255  # the foot, at the bottom
    label = np.array([12])
    write(tmp_path, "letters", test_images=column_by_column, test_labels=label)
    test = emnist.load_letters(LoadOptions(tmp_path)).test
    assert emnist.LETTERS.class_names[test.labels[0]] == "L"
    assert (test.images[0, 0, :, 0] == 255).all()
    assert (test.images[0, 0, 27, :] == 255).all()
    assert test.images[0, 0, 0, 1:].sum() == 0


def test_class_names() -> None:
    theirs = torchvision.datasets.EMNIST.classes_split_dict
    assert list(emnist.BALANCED.class_names) == theirs["balanced"]
    assert [name.lower() for name in emnist.LETTERS.class_names] == theirs["letters"][1:]
    assert emnist.LETTERS.class_names == tuple(string.ascii_uppercase)


@pytest.mark.parametrize(
    ("split", "wrong", "allowed"),
    [("letters", 0, "1 to 26"), ("letters", 27, "1 to 26"), ("balanced", 47, "0 to 46")],
)
def test_label_out_of_range(tmp_path: Path, split: str, wrong: int, allowed: str) -> None:
    labels = arrays(split)[f"emnist-{split}-train-labels-idx1-ubyte"].copy()
    labels[7] = wrong
    write(tmp_path, split, train_labels=labels)
    with pytest.raises(DatasetFormatError) as failure:
        LOADERS[split](LoadOptions(tmp_path))
    path = tmp_path / f"emnist-{split}-train-labels-idx1-ubyte"
    assert f"{path}: found label {wrong} at position 7, expected labels {allowed}. Remove" in str(
        failure.value
    )


def test_truncated_gzip(tmp_path: Path) -> None:
    path = write(tmp_path, "balanced", compressed=True) / "emnist-balanced-test-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(
        DatasetFormatError, match=rf"{path}: found unreadable data .*`torchvision\.datasets\.EMNIST"
    ):
        emnist.load_balanced(LoadOptions(tmp_path))


def test_wrong_magic_number(tmp_path: Path) -> None:
    path = write(tmp_path, "letters") / "emnist-letters-train-labels-idx1-ubyte"
    path.write_bytes(b"\x00\x00\x0d\x01" + path.read_bytes()[4:])
    with pytest.raises(
        DatasetFormatError, match=f"{path}: found magic number 0x00000d01, expected 0x00000801"
    ):
        emnist.load_letters(LoadOptions(tmp_path))


def test_nothing_found_is_one_error(home: Path) -> None:
    (
        write(home / "XDG_CACHE_HOME/rarefl/datasets", "letters") / "emnist-letters-test-labels-idx1-ubyte"
    ).unlink()
    with pytest.raises(DatasetNotFoundError) as failure:
        emnist.load_letters(LoadOptions())
    lines = str(failure.value).splitlines()
    assert lines[0] == "EMNIST Letters was not found. Looked in"
    assert lines[1].endswith("XDG_DATA_HOME/rarefl/datasets: no such folder")
    assert lines[2].endswith("lacks emnist-letters-test-labels-idx1-ubyte (plain or .gz)")
    assert "download to" in lines[3]
    assert "gzip.zip" in lines[3]
    assert lines[4].startswith("Call `torchvision.datasets.EMNIST(FOLDER, split='letters', download=True)`")


def test_one_download_serves_both_sets(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serving: Server
) -> None:
    (tmp_path / "mirror").mkdir()
    archive = tmp_path / "mirror" / "gzip.zip"
    with ZipFile(archive, "w") as file:
        for split in LOADERS:
            for path in sorted(write(tmp_path / split, split, compressed=True).iterdir()):
                file.write(path, f"gzip/{path.name}")
    monkeypatch.setattr(torchvision.datasets.EMNIST, "md5", calculate_md5(archive))
    with serving(archive.parent) as url:
        monkeypatch.setattr(torchvision.datasets.EMNIST, "url", f"{url}gzip.zip")
        assert len(emnist.load_balanced(LoadOptions()).train) == 94
    # The server is gone.
    assert len(emnist.load_letters(LoadOptions()).train) == 52
    files = sorted(path.name for path in (downloads.download_place() / "EMNIST/raw").iterdir())
    assert files == sorted([*arrays("balanced"), *arrays("letters")])
