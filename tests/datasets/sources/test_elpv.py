"""ELPV's solar cells: the package's own images, and faults of other copies."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from datasets.base import LoadOptions
from datasets.errors import DatasetFormatError, DatasetNotFoundError
from datasets.sources import elpv

LINES = [
    f"images/cell{i:04d}.png  {('0.0', '0.3333333333333333', '0.6666666666666666', '1.0')[i % 4]}  mono"
    for i in range(20)
]


def write(folder: Path, lines: list[str] = LINES, size: int = 300, mode: str = "L") -> Path:
    (folder / "images").mkdir(parents=True)
    for i in range(len(lines)):
        Image.new(mode, (size, size), color=None if mode == "RGB" else i).save(
            folder / f"images/cell{i:04d}.png"
        )
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")
    return folder


def test_the_packages_images(cache_home: Path) -> None:
    dataset = elpv.load(LoadOptions(seed=1))
    assert dataset.train.images.shape == (2099, 1, 64, 64)
    assert dataset.test.images.shape == (525, 1, 64, 64)
    train, test = np.bincount(dataset.train.labels), np.bincount(dataset.test.labels)
    assert (train + test).tolist() == [1508, 295, 106, 715]
    assert np.abs(test / (train + test) - 0.2).max() < 0.005
    pixels = dataset.train.images.double() / 255
    assert abs(pixels.mean().item() - dataset.card.mean[0]) < 1e-9
    assert abs(pixels.std(correction=0).item() - dataset.card.std[0]) < 1e-9
    assert abs(dataset.card.mean[0] - 0.596) < 0.002
    other = elpv.load(LoadOptions(seed=2))
    assert not torch.equal(other.test.images, dataset.test.images)


def test_labels_are_thirds(tmp_path: Path, cache_home: Path) -> None:
    dataset = elpv.load(LoadOptions(write(tmp_path / "data"), seed=1))
    shades = torch.cat([dataset.train.images, dataset.test.images])[:, 0, 5, 5].numpy()
    labels = np.concatenate([dataset.train.labels, dataset.test.labels])
    assert sorted(shades) == list(range(20))
    assert np.array_equal(labels, shades % 4)  # a cell's shade is its number
    assert not dataset.left_out


def test_the_published_size(tmp_path: Path, cache_home: Path) -> None:
    dataset = elpv.load(LoadOptions(write(tmp_path / "data"), image_size=300))
    assert dataset.train.images.shape == (16, 1, 300, 300)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("images/cell0002.png 0.5 mono", "found label 1.5 in line 3, expected whole numbers"),
        ("images/cell0002.png 0.4 mono", "found label 1.2000000000000002 in line 3, expected whole numbers"),
        ("images/cell0002.png 2.0 mono", "found label 6 in line 3, expected labels 0 to 3"),
        ("images/cell0002.png none mono", "found label nan in line 3, expected whole numbers"),
        ("images/cell0002.png", "found label nan in line 3, expected whole numbers"),
    ],
)
def test_wrong_lines(tmp_path: Path, line: str, found: str) -> None:
    write(tmp_path, [*LINES[:2], line, *LINES[3:]])
    with pytest.raises(DatasetFormatError) as failure:
        elpv.load(LoadOptions(tmp_path))
    assert found in str(failure.value)
    assert str(failure.value).startswith(f"{tmp_path / 'labels.csv'}: ")
    assert "pip install elpv-dataset" in str(failure.value)


def test_a_file_that_stands_twice(tmp_path: Path) -> None:
    write(tmp_path, [*LINES[:5], LINES[0]])
    with pytest.raises(DatasetFormatError, match=r"line 6: file 'images/cell0000.png' stands in line 1"):
        elpv.load(LoadOptions(tmp_path))


def test_a_damaged_and_a_missing_image_are_left_out(tmp_path: Path, cache_home: Path) -> None:
    path = write(tmp_path / "data") / "images" / "cell0003.png"
    path.write_bytes(path.read_bytes()[:60])
    path.with_name("cell0004.png").unlink()
    with pytest.raises(DatasetFormatError, match="max-unreadable"):
        elpv.load(LoadOptions(tmp_path / "data"))
    dataset = elpv.load(LoadOptions(tmp_path / "data", max_unreadable=0.1))
    assert len(dataset.train) + len(dataset.test) == 18
    assert [line.split(":")[0] for line in dataset.left_out] == [
        str(tmp_path / f"data/images/cell000{i}.png") for i in (3, 4)
    ]


def test_a_root_without_labels(tmp_path: Path) -> None:
    with pytest.raises(
        DatasetNotFoundError, match=rf"(?s)Looked in\n  {tmp_path}: lacks labels\.csv\nInstall"
    ):
        elpv.load(LoadOptions(tmp_path))


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "elpv_dataset", None)
    with pytest.raises(
        DatasetNotFoundError, match=r"elpv-dataset is not installed\. .*pip install elpv-dataset"
    ):
        elpv.load(LoadOptions())
