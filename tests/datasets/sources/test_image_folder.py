"""Folders of images: layouts, and what is wrong with some."""

import logging
import os
import unicodedata
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from datasets.base import Copies, LoadOptions
from datasets.errors import DatasetFormatError, DatasetNotFoundError
from datasets.sources import image_folder
from tests.datasets.written_images import damaged_files, save, save_noise, save_pixels

pytestmark = pytest.mark.usefixtures("cache_home")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "lesions"
    folder.mkdir()
    return folder


def fill(folder: Path, count: int, value: int = 0, suffix: str = "png") -> None:
    """Write gray images whose first value tells where they lie; the last four make each the only one."""
    for i in range(count):
        path = folder / f"{i}.{suffix}"
        pixels = np.full(64, value, dtype=np.uint8)
        pixels[-4:] = np.frombuffer(zlib.crc32(os.fsencode(path)).to_bytes(4, "little"), dtype=np.uint8)
        save_pixels(path, pixels.reshape(8, 8))


def load(root: Path, **options: object):  # type: ignore[no-untyped-def]
    return image_folder.load(LoadOptions(root, image_size=8, **options))  # type: ignore[arg-type]


def test_classes(root: Path) -> None:
    fill(root / "nv", 10, 10)
    fill(root / "mel", 5, 20)
    dataset = load(root)
    assert dataset.card.class_names == ("mel", "nv")
    assert dataset.sites is None
    assert dataset.train_groups is None
    assert dataset.left_out == ()
    for split, counts in ((dataset.train, [4, 8]), (dataset.test, [1, 2])):
        assert np.bincount(split.labels).tolist() == counts
        assert split.images.shape[1:] == (1, 8, 8)
        assert split.images[:, 0, 0, 0].tolist() == [[20, 10][label] for label in split.labels]
    assert dataset.card.mean == pytest.approx((dataset.train.images.double().mean().item() / 255,))
    assert dataset.copies == Copies()


def test_size_is_64_unless_told_and_rgb_gives_three_channels(root: Path) -> None:
    fill(root / "a", 2)
    fill(root / "b", 2)
    assert image_folder.load(LoadOptions(root)).train.images.shape == (2, 1, 64, 64)
    assert load(root, rgb=True).train.images.shape == (2, 3, 8, 8)


def test_the_seed_decides_the_split(root: Path) -> None:
    for name in "ab":
        for i in range(20):
            save_noise(root / name / f"{i}.png", i + 100 * (name == "b"), (8, 8))
    images = [load(root, seed=seed).test.images.numpy().tobytes() for seed in (1, 1, 2)]
    assert images[0] == images[1] != images[2]


def test_sites_and_a_class_that_one_lacks(root: Path) -> None:
    fill(root / "vienna" / "nv", 10, 1)
    fill(root / "vienna" / "df", 5, 2)
    fill(root / "bern" / "nv", 10, 3)
    (root / "bern" / "df").mkdir()
    dataset = load(root)
    assert dataset.card.class_names == ("df", "nv")
    assert dataset.sites is not None
    assert dataset.sites.names == ("bern", "vienna")
    for split, sites in ((dataset.train, dataset.sites.train), (dataset.test, dataset.sites.test)):
        values = {(1, 0): 2, (1, 1): 1, (0, 1): 3}
        found = split.images[:, 0, 0, 0].tolist()
        assert found == [
            values[site, label] for site, label in zip(sites.tolist(), split.labels.tolist(), strict=True)
        ]
    assert np.bincount(dataset.sites.test).sum() == 5


@pytest.mark.parametrize("sites", ["", "bern"])
def test_published_split(root: Path, sites: str) -> None:
    for split, value in (("train", 1), ("test", 2)):
        fill(root / split / sites / "a", 3, value)
        fill(root / split / sites / "b", 2, value)
    dataset = load(root)
    values = [set(split.images[:, 0, 0, 0].tolist()) for split in (dataset.train, dataset.test)]
    assert values == [{1}, {2}]
    assert dataset.test.labels.tolist() == [0, 0, 0, 1, 1]
    assert (dataset.sites is not None) == bool(sites)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_class_list(root: Path, encoding: str) -> None:
    fill(root / "nv", 2)
    fill(root / unicodedata.normalize("NFD", "nävus"), 2)
    (root / "empty").mkdir()
    (root / "classes.txt").write_bytes("nv\r\nmel\nnävus\n\nempty\n".encode(encoding))
    dataset = load(root)
    assert dataset.card.class_names == ("nv", "mel", "nävus", "empty")
    assert sorted(dataset.train.labels.tolist()) == [0, 2]


def test_suffixes_in_either_case_and_files_of_the_system(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number, suffix in enumerate(
        ("jpg", "jpeg", "png", "ppm", "bmp", "pgm", "tif", "tiff", "webp", "JPG", "PnG")
    ):
        save(root / "a" / f"{number}.{suffix}", 7 * number, size=(8, 8), mode="L")
    fill(root / "b", 2)
    for name in ("Thumbs.db", ".DS_Store", ".hidden.png", "notes.docx", "table.csv"):
        (root / "a" / name).write_text("?")
    (root / "Thumbs.db").write_text("?")
    (root / ".git" / "x").mkdir(parents=True)
    (root / "__MACOSX" / "a").mkdir(parents=True)
    with caplog.at_level(logging.INFO, logger="rarefl"):
        dataset = load(root)
    assert len(dataset.train) + len(dataset.test) == 13
    assert (
        f"{root}: 2 files are no images and were ignored, such as {root / 'a' / 'notes.docx'}" in caplog.text
    )


def test_damaged_images_are_left_out(root: Path) -> None:
    fill(root / "a", 46)
    fill(root / "b", 50)
    reasons = {str(path): reason for reason, path in damaged_files(root / "a").items()}
    for _ in range(2):
        dataset = load(root, max_unreadable=0.04)
        assert len(dataset.train) + len(dataset.test) == 96
        told = dict(line.split(": ", 1) for line in dataset.left_out)
        assert told.keys() == reasons.keys()
        assert all(reasons[path] in reason for path, reason in told.items())
    with pytest.raises(DatasetFormatError) as failure:
        load(root, max_unreadable=0.039)
    for part in (
        "4 of 100 images",
        "data.max-unreadable = 0.039",
        str(root / "a" / "damaged0.jpg"),
        "0 bytes",
    ):
        assert part in str(failure.value)


def test_nothing_but_damage_is_an_error_at_any_share(root: Path) -> None:
    damaged_files(root / "a")
    damaged_files(root / "b")
    with pytest.raises(DatasetFormatError, match=r"8 of 8 images cannot be used(?s:.)*and 3 more"):
        load(root, max_unreadable=1.0)


Layout = Callable[[Path], object]


@pytest.mark.parametrize(
    ("layout", "parts"),
    [
        (lambda root: None, ["lesions: there is no image file", "ROOT/SITE/CLASS/"]),
        (lambda root: fill(root / "a", 2), ["lesions: there is one class alone, 'a'", "classes.txt"]),
        (lambda root: fill(root, 1), ["0.png: this image is in no class folder"]),
        (
            lambda root: (fill(root / "a", 1), fill(root, 1)),
            ["lesions/0.png: this image is in no class folder"],
        ),
        (
            lambda root: (fill(root / "a", 1), fill(root / "b" / "c", 1)),
            ["such as", "a/0.png", "one folder deeper", "b/c/0.png"],
        ),
        (lambda root: fill(root / "a" / "b" / "c", 1), ["a/b/c: this folder lies deeper"]),
        (
            lambda root: (fill(root / "a", 2), (root / "e").mkdir()),
            ["lesions/e: this class folder holds no image"],
        ),
        (
            lambda root: (
                fill(root / "s" / "a", 2),
                fill(root / "s" / "b", 2),
                (root / "t" / "c").mkdir(parents=True),
            ),
            ["t/c: this class folder holds no image"],
        ),
        (
            lambda root: (fill(root / "s" / "a", 2), fill(root / "s" / "b", 2), (root / "t").mkdir()),
            ["lesions/t: this site's folder holds no class folder"],
        ),
        (lambda root: fill(root / "train" / "a", 2), ["folder train and no folder test", "set data.root to"]),
        (
            lambda root: [fill(root / name / "a", 1) for name in ("train", "test", "val")],
            ["lesions/val: this folder lies beside train and test"],
        ),
        (
            lambda root: (fill(root / "train" / "a", 2), (root / "test").mkdir()),
            ["lesions/test: there is no image file"],
        ),
        (
            lambda root: (fill(root / "Mel", 2), (root / "classes.txt").write_text("mel\nnv\n")),
            ["the class of the folder 'Mel'; it names mel, nv (did you mean 'mel'?)."],
        ),
        (
            lambda root: (
                fill(root / "nv", 2),
                (root / "x").mkdir(),
                (root / "classes.txt").write_text("mel\nnv\n"),
            ),
            ["the folder 'x'"],
        ),
        (
            lambda root: (fill(root / "nv", 2), (root / "classes.txt").write_text("mel\nnv\nmel\n")),
            ["classes.txt, line 3: class 'mel' stands in line 1 already"],
        ),
        (
            lambda root: (fill(root / "nv", 2), (root / "classes.txt").write_bytes(b"\xff\xfe\x00")),
            ["classes.txt: cannot be read", "UTF-8"],
        ),
        (
            lambda root: (fill(root / "nv", 2), (root / "nv" / "up").symlink_to(root)),
            ["nv/up: this link leads back to", "Remove the link"],
        ),
        (
            lambda root: (fill(root / "nv", 2), (root / "self").symlink_to(root / "self")),
            ["self: cannot be read: Too many levels of symbolic links"],
        ),
        (lambda root: (fill(root / "a", 1), fill(root / "b", 1)), ["no test image is left of 2 images"]),
    ],
)
def test_what_is_wrong_is_named(root: Path, layout: Layout, parts: list[str]) -> None:
    layout(root)
    with pytest.raises(DatasetFormatError) as failure:
        load(root)
    for part in parts:
        assert part in str(failure.value)


def test_links_to_folders_elsewhere_are_followed(root: Path, tmp_path: Path) -> None:
    fill(tmp_path / "elsewhere", 2)
    fill(root / "a", 2)
    (root / "b").symlink_to(tmp_path / "elsewhere")
    assert load(root).card.class_names == ("a", "b")


def test_a_folder_that_may_not_be_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(root / "a", 2)
    fill(root / "b", 2)
    scandir = os.scandir

    def refuse(path: Path):  # type: ignore[no-untyped-def]
        if path == root / "b":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(DatasetFormatError, match=r"lesions/b: cannot be read: Permission denied"):
        load(root)


def test_root_is_required(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError, match=r"data\.root is empty"):
        image_folder.load(LoadOptions())
    with pytest.raises(DatasetNotFoundError, match="nowhere': there is no such folder"):
        load(tmp_path / "nowhere")


@pytest.mark.parametrize("name", [b"\xe9", b"s/\xe9", b"s/a/\xe9.png"])
def test_names_that_no_message_can_hold(root: Path, name: bytes) -> None:
    fill(root / "s" / "b", 2)
    place = root / os.fsdecode(name)
    place.parent.mkdir(parents=True, exist_ok=True)
    fill(place, 1) if place.suffix == "" else save(root / "x.png", 0, mode="L").rename(place)
    with pytest.raises(
        DatasetFormatError, match=r"the name of b'\\xe9.*' in this folder is no UTF-8 text"
    ) as failure:
        load(root)
    str(failure.value).encode()


def test_sites_of_one_name_in_two_forms_are_one(root: Path) -> None:
    for split, form in (("train", "NFC"), ("test", "NFD")):
        for name in "ab":
            fill(root / split / unicodedata.normalize(form, "Zürich") / name, 2)
    dataset = load(root)
    assert dataset.sites is not None
    assert dataset.sites.names == (unicodedata.normalize("NFC", "Zürich"),)


def test_a_root_that_is_a_file_or_too_long_a_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DatasetNotFoundError, match="file': it is no folder"):
        load(tmp_path / "file")
    with pytest.raises(DatasetNotFoundError, match="no such folder, or it may not be read"):
        load(tmp_path / ("a" * 5000))


def test_what_is_left_out_is_told_once_by_the_log(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    fill(root / "a", 9)
    fill(root / "b", 9)
    (root / "a" / "0.png").write_bytes(b"")
    load(root, max_unreadable=0.1)
    (line,) = (record.getMessage() for record in caplog.records if "left out" in record.getMessage())
    damaged = f"{root / 'a' / '0.png'}: it is empty (0 bytes)"
    assert line == f"{root}: images that cannot be used were left out: 1, such as {damaged}"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Benign", "benign"),
        ("Malignant", "Malignant "),
        ("basal cell", "Basal  Cell"),
        ("basal cell", "basalcell"),
        (unicodedata.normalize("NFC", "nävus"), unicodedata.normalize("NFD", "nävus")),
        (unicodedata.normalize("NFC", "nävus"), unicodedata.normalize("NFD", "Nävus")),
        ("straße", "STRASSE"),
    ],
)
@pytest.mark.parametrize("sites", [("", ""), ("a", "a"), ("a", "b"), ("train", "test")])
def test_class_folders_that_read_alike_are_refused(
    root: Path, first: str, second: str, sites: tuple[str, str]
) -> None:
    one, two = root / sites[0] / first, root / sites[1] / second
    fill(one, 2)
    fill(two, 2)
    fill(root / sites[0] / "other", 2)
    fill(root / sites[1] / "other", 2)
    same = unicodedata.normalize("NFC", first) == unicodedata.normalize("NFC", second)
    if same and sites[0] != sites[1]:  # another operating system's form of the same name
        assert len(load(root).card.class_names) == 2
        return
    with pytest.raises(DatasetFormatError, match=r"Give them one name, or, .*classes\.txt") as failure:
        load(root)
    assert repr(str(one)) in str(failure.value)
    assert repr(str(two)) in str(failure.value)


def test_two_forms_beside_each_other_are_found_at_a_later_site(root: Path) -> None:
    composed, decomposed = (unicodedata.normalize(form, "nävus") for form in ("NFC", "NFD"))
    for site, name in (("a", composed), ("b", composed), ("b", decomposed), ("a", "mel")):
        fill(root / site / name, 2)
    with pytest.raises(DatasetFormatError, match=r"lesions/b/.* and .*lesions/b/"):
        load(root)


def test_an_empty_class_folder_that_reads_alike_is_refused(root: Path) -> None:
    fill(root / "a" / "nv", 2)
    fill(root / "a" / "mel", 2)
    fill(root / "b" / "nv", 2)
    (root / "b" / "Mel").mkdir()
    with pytest.raises(DatasetFormatError, match="letter case"):
        load(root)


def test_classes_that_are_listed_may_read_alike(root: Path) -> None:
    for name in "aA":
        fill(root / name, 2)
    (root / "classes.txt").write_text("a\nA\n")
    assert load(root).card.class_names == ("a", "A")


def test_the_same_image_under_two_classes_is_left_out_and_named(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(root / "mel", 8)
    fill(root / "nv", 8)
    save_noise(root / "mel" / "x.png", 1, (8, 8))
    save_noise(root / "nv" / "y.png", 1, (8, 8))
    save_noise(root / "nv" / "z.bmp", 1, (8, 8))  # the same pixels in another format
    dataset = load(root)
    assert len(dataset.train) + len(dataset.test) == 16
    mel, nv = root / "mel" / "x.png", root / "nv" / "y.png"
    assert dataset.left_out == (
        f"{mel}: the same image is in class 'nv', too: {nv}",
        f"{nv}: the same image is in class 'mel', too: {mel}",
        f"{root / 'nv' / 'z.bmp'}: the same image is in class 'mel', too: {mel}",
    )
    assert dataset.copies == Copies(contradictory=3)
    assert "left out: 3, such as" in caplog.text


@pytest.mark.parametrize("seed", range(6))
def test_copies_are_in_one_split_and_one_group(root: Path, seed: int) -> None:
    fill(root / "mel", 12)
    fill(root / "nv", 12)
    for number in range(4):
        save_noise(root / "nv" / f"copy{number}.png", 1, (8, 8))
        save_noise(root / "mel" / f"twin{number % 2}{number}.bmp", 2 + number % 2, (8, 8))
    dataset = load(root, seed=seed)
    assert dataset.left_out == ()
    assert len(dataset.train) + len(dataset.test) == 32
    contents = [
        {image.numpy().tobytes() for image in split.images} for split in (dataset.train, dataset.test)
    ]
    assert not contents[0] & contents[1]
    groups = dataset.train_groups
    assert groups is not None
    by_content: dict[bytes, set[int]] = {}
    for image, group in zip(dataset.train.images, groups.tolist(), strict=True):
        by_content.setdefault(image.numpy().tobytes(), set()).add(group)
    assert all(len(of_content) == 1 for of_content in by_content.values())
    assert len(set().union(*by_content.values())) == len(by_content)
    assert dataset.copies == Copies(kept=3 + 1 + 1)


def test_a_training_image_that_is_in_the_published_test_split_is_left_out(root: Path) -> None:
    for split in ("train", "test"):
        fill(root / split / "mel", 3)
        fill(root / split / "nv", 3)
        save_noise(root / split / "nv" / f"{split}.png", 1, (8, 8))
    save_noise(root / "train" / "nv" / "again.png", 1, (8, 8))
    dataset = load(root)
    assert (len(dataset.train), len(dataset.test)) == (6, 7)
    copy = root / "test" / "nv" / "test.png"
    assert dataset.left_out == tuple(
        f"{root / 'train' / 'nv' / name}: the same image is in the test split, too: {copy}"
        for name in ("again.png", "train.png")
    )
    assert dataset.copies == Copies(in_test=2)


def test_an_image_in_both_splits_under_two_classes_is_left_out_of_both(root: Path) -> None:
    for split in ("train", "test"):
        fill(root / split / "mel", 3)
        fill(root / split / "nv", 3)
    save_noise(root / "train" / "nv" / "x.png", 1, (8, 8))
    save_noise(root / "test" / "mel" / "x.png", 1, (8, 8))
    dataset = load(root)
    assert (len(dataset.train), len(dataset.test)) == (6, 6)
    assert dataset.copies == Copies(contradictory=2)


def test_copies_at_two_sites_stay_there(root: Path) -> None:
    for site in ("bern", "wien"):
        fill(root / site / "mel", 5)
        fill(root / site / "nv", 5)
        save_noise(root / site / "nv" / "x.png", 1, (8, 8))
    dataset = load(root)
    assert dataset.sites is not None
    assert np.bincount(np.concatenate([dataset.sites.train, dataset.sites.test])).tolist() == [11, 11]
