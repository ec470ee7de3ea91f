"""Decoded images are kept, shared, and never half there."""

import logging
import os
import resource
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from datasets.errors import ImageCacheError
from datasets.images import image_cache
from datasets.images.decoding import decode
from datasets.images.image_cache import CachedImages, cache_folder, cached_images
from tests.datasets.written_images import damaged_files, save, save_noise

ROOT = Path(__file__).parents[3]
SIZE = 16


@pytest.fixture
def folder(tmp_path: Path, cache_home: Path) -> Path:
    """Return a folder of ten images, one of them gray."""
    for i in range(9):
        save_noise(tmp_path / "images" / f"{i}.png", i)
    save(tmp_path / "images" / "9.png", 80, mode="L")
    return tmp_path / "images"


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return a list of the files that are decoded from now on."""
    files: list[Path] = []
    inner = image_cache.decode_all

    def counting(paths: list[Path], size: int) -> Iterator[object]:
        files.extend(paths)
        return inner(paths, size)

    monkeypatch.setattr(image_cache, "decode_all", counting)
    return files


def load(folder: Path, rgb: bool = False, size: int = SIZE) -> CachedImages:
    return cached_images("tests", folder, sorted(path.name for path in folder.iterdir()), size, rgb)


def everything(cached: CachedImages) -> torch.Tensor:
    return cached.arranged(np.arange(len(cached.readable)), np.arange(0))[0]


def entries() -> list[str]:
    return sorted(path.name for path in cache_folder().iterdir() if path.is_dir())


def test_images_are_the_decoded_files(folder: Path) -> None:
    images = everything(load(folder))
    assert images.shape == (10, 3, SIZE, SIZE)
    assert images.dtype == torch.uint8
    for i in range(9):
        assert np.array_equal(images[i], decode(folder / f"{i}.png", SIZE))
    assert (images[9] == 80).all()


def test_a_second_start_decodes_nothing(folder: Path, decoded: list[Path]) -> None:
    first = everything(load(folder))
    assert len(decoded) == 10
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        second = everything(load(folder))
    assert len(decoded) == 10
    assert torch.equal(first, second)


@pytest.mark.parametrize("change", ["content", "time", "one more", "one less", "name", "size", "channels"])
def test_a_change_means_a_new_entry(folder: Path, decoded: list[Path], change: str) -> None:
    load(folder)
    decoded.clear()
    rgb, size = change == "channels", 8 if change == "size" else SIZE
    if change == "content":
        save_noise(folder / "0.png", 100, size=(50, 50))
    elif change == "time":
        os.utime(folder / "0.png", ns=(0, 1))
    elif change == "one more":
        save_noise(folder / "more.png", 100)
    elif change == "one less":
        (folder / "0.png").unlink()
    elif change == "name":
        (folder / "0.png").rename(folder / "00.png")
    cached = load(folder, rgb, size)
    assert len(decoded) == len(list(folder.iterdir()))
    assert np.array_equal(everything(cached)[0], decode(sorted(folder.iterdir())[0], size))
    # An entry of files that have changed is of no more use; other sizes and channels are.
    assert len(entries()) == (2 if change in ("size", "channels") else 1)


def test_gray_images_have_one_channel_unless_three_are_asked_for(tmp_path: Path, cache_home: Path) -> None:
    for i in range(4):
        save(tmp_path / "gray" / f"{i}.png", 50 * i, mode="L")
    assert everything(load(tmp_path / "gray"))[:, :, 0, 0].tolist() == [[0], [50], [100], [150]]
    assert everything(load(tmp_path / "gray", rgb=True))[:, :, 0, 0].tolist() == [
        [0] * 3,
        [50] * 3,
        [100] * 3,
        [150] * 3,
    ]


def test_mean_and_deviation(tmp_path: Path, cache_home: Path) -> None:
    for i, value in enumerate((0, 51, 255)):
        save(tmp_path / "gray" / f"{i}.png", value, mode="L")
    cached = load(tmp_path / "gray")
    assert cached.mean_and_std(np.array([0, 1])) == (pytest.approx((0.1,)), pytest.approx((0.1,)))
    assert cached.mean_and_std(np.array([1])) == (pytest.approx((0.2,)), (pytest.approx(1 / 255),))


def test_damaged_files_are_told_at_every_start(folder: Path, decoded: list[Path]) -> None:
    reasons = {path.name: reason for reason, path in damaged_files(folder).items()}
    for _ in range(2):
        cached = load(folder)
        assert list(cached.damaged) == sorted(reasons)
        assert all(reasons[name] in found for name, found in cached.damaged.items())
        names = sorted(path.name for path in folder.iterdir())
        assert [names[i] for i in cached.readable] == [f"{i}.png" for i in range(10)]
        assert len(everything(cached)) == 10
    assert len(decoded) == 14


def test_splits_are_slices_of_one_mapped_file(folder: Path) -> None:
    cached = load(folder)
    whole = everything(cached).clone()
    train, test = np.array([8, 1, 3]), np.array([2, 9])
    images = cached.arranged(train, test)
    assert torch.equal(images[0], whole[torch.from_numpy(train)])
    assert torch.equal(images[1], whole[torch.from_numpy(test)])
    assert images[0].untyped_storage().data_ptr() == images[1].untyped_storage().data_ptr()
    images[0][:] = 0  # copy-on-write
    assert torch.equal(cached.arranged(train, test)[0], whole[torch.from_numpy(train)])
    mapped = Path("/proc/self/maps").read_text()
    assert str(cached.entry / "splits") in mapped


def test_images_are_written_once_where_the_split_was_expected(folder: Path) -> None:
    train, test = np.array([8, 1, 3, 0, 4]), np.array([2, 9, 5, 6, 7])
    names = sorted(path.name for path in folder.iterdir())
    cached = cached_images("tests", folder, names, SIZE, False, np.concatenate([train, test]))
    splits = cached.arranged(train, test)
    for images, positions in zip(splits, (train, test), strict=True):
        for image, position in zip(images, positions, strict=True):
            expected = np.broadcast_to(decode(folder / names[position], SIZE), (3, SIZE, SIZE))
            assert np.array_equal(image, expected)
    splits[0][:] = 0  # copy-on-write
    assert cached.arranged(train, test)[0].any()
    assert not (cached.entry / "splits").exists()
    written = sum(path.stat().st_size for path in cached.entry.rglob("*"))
    assert written < 10 * 3 * SIZE * SIZE + 2500
    # Another order finds the same entry, and what is told of each file.
    again = cached_images("tests", folder, names, SIZE, False)
    assert np.array_equal(again.sums, cached.sums)
    assert torch.equal(everything(again)[torch.from_numpy(train)], cached.arranged(train, test)[0])
    assert (cached.entry / "splits").exists()


def test_sums_and_digests_are_those_of_each_file_in_any_order(folder: Path) -> None:
    damaged_files(folder)
    (folder / "a-copy-of-3.png").write_bytes((folder / "3.png").read_bytes())
    names = sorted(path.name for path in folder.iterdir())
    order = np.random.default_rng(0).permutation(len(names))
    cached = cached_images("tests", folder, names, SIZE, False, order)
    images = everything(cached).numpy().astype(np.int64)
    readable = [names[position] for position in cached.readable]
    assert readable == [f"{i}.png" for i in range(10)] + ["a-copy-of-3.png"]
    for name, image in zip(readable, images, strict=True):
        assert np.array_equal(image, np.broadcast_to(decode(folder / name, SIZE), image.shape))
    assert np.array_equal(cached.sums[:, 0], images.sum(axis=(2, 3)))
    assert np.array_equal(cached.sums[:, 1], (images**2).sum(axis=(2, 3)))
    assert len(np.unique(cached.digests, axis=0)) == 10
    assert np.array_equal(cached.digests[3], cached.digests[10])


@pytest.mark.parametrize("coloured", range(5))
def test_gray_images_before_the_first_in_colours_become_three_channels(
    tmp_path: Path, cache_home: Path, coloured: int
) -> None:
    for i in range(5):
        colour = (10, 20, 30) if i == coloured else (i, i, i)
        save(tmp_path / "mixed" / f"{i}.png", colour)
    expected = [[i] * 3 for i in range(5)]
    expected[coloured] = [10, 20, 30]
    assert everything(load(tmp_path / "mixed"))[:, :, 0, 0].tolist() == expected


def test_only_some_splits_are_kept(folder: Path) -> None:
    cached = load(folder)
    orders = [np.roll(np.arange(10), i) for i in range(6)]
    for order in (*orders[:4], orders[0], *orders[4:]):
        images = cached.arranged(order, np.arange(0))[0]
        assert np.array_equal(images[0], everything(load(folder))[int(order[0])])
        time.sleep(0.02)
    assert len([path for path in (cached.entry / "splits").iterdir() if path.is_dir()]) == 4


@pytest.mark.parametrize("file", ["images.npy", "sums.npy", "digests.npy", "places.npy", "files.json"])
@pytest.mark.parametrize("damage", [b"", b"{}", None])
def test_a_damaged_entry_is_made_again(
    folder: Path, decoded: list[Path], file: str, damage: bytes | None
) -> None:
    whole = everything(load(folder)).clone()
    path = load(folder).entry / file
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage)
    decoded.clear()
    assert torch.equal(everything(load(folder)), whole)
    assert len(decoded) == 10


def test_a_cache_folder_that_cannot_be_made_is_one_error(folder: Path, cache_home: Path) -> None:
    cache_home.write_text("a file where a folder should be")
    with pytest.raises(ImageCacheError) as failure:
        load(folder)
    assert str(failure.value).startswith(f"{cache_folder()}: ")
    assert "directory" in str(failure.value)
    assert "XDG_CACHE_HOME" in str(failure.value)


def test_a_disk_without_room_is_told_before_decoding(
    folder: Path, decoded: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_cache.shutil, "disk_usage", lambda path: Usage())
    with pytest.raises(ImageCacheError, match="2 MB are needed and 1 MB are free"):
        load(folder, size=256)
    assert not decoded
    assert entries() == []


class Usage:
    free = 1_000_000


def test_a_disk_that_fills_up_leaves_nothing_behind(folder: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5 * 3 * SIZE * SIZE, hard))
    try:
        with pytest.raises(ImageCacheError, match="File too large"):
            load(folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert entries() == []
    assert len(everything(load(folder))) == 10


BUILD = """
import sys, time
from pathlib import Path
import datasets.images.image_cache as cache
inner = cache.decode_all
def slow(paths, size):
    with open(sys.argv[2], "a") as log:
        for path, result in zip(paths, inner(paths, size)):
            print(path.name, file=log, flush=True)
            time.sleep(float(sys.argv[3]))
            yield result
class Closing:
    def __init__(self, results): self.results = results
    def __iter__(self): return self.results
    def close(self): self.results.close()
cache.decode_all = lambda paths, size: Closing(slow(paths, size))
folder = Path(sys.argv[1])
names = sorted(path.name for path in folder.iterdir())
cached = cache.cached_images("tests", folder, names, 16, False)
print(len(cached.readable))
"""


def builder(folder: Path, log: Path, pause: float) -> subprocess.Popen[str]:
    log.touch()
    arguments = [sys.executable, "-c", BUILD, str(folder), str(log), str(pause)]
    return subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def wait_for_lines(log: Path, count: int) -> None:
    while len(log.read_text().splitlines()) < count:
        time.sleep(0.02)


def test_a_killed_build_leaves_no_entry_and_is_cleared_away(folder: Path, tmp_path: Path) -> None:
    process = builder(folder, tmp_path / "log", pause=60)
    wait_for_lines(tmp_path / "log", 1)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    (partial,) = entries()
    assert partial.endswith(".partial")
    # Another data set's build clears away, too.
    save_noise(tmp_path / "other" / "a.png", 1)
    load(tmp_path / "other")
    assert [name for name in entries() if name.endswith(".partial")] == []
    assert len(everything(load(folder))) == 10


def test_what_a_living_build_has_made_so_far_stays(folder: Path, tmp_path: Path) -> None:
    process = builder(folder, tmp_path / "log", pause=60)
    try:
        wait_for_lines(tmp_path / "log", 1)
        save_noise(tmp_path / "other" / "a.png", 1)
        load(tmp_path / "other")
        assert len([name for name in entries() if name.endswith(".partial")]) == 1
    finally:
        process.kill()
        process.communicate()


def test_two_builds_at_once_are_one(folder: Path, tmp_path: Path) -> None:
    processes = [builder(folder, tmp_path / "log", pause=0.2) for _ in range(2)]
    answers = [process.communicate()[0] for process in processes]
    assert answers == ["10\n", "10\n"]
    assert sorted((tmp_path / "log").read_text().split()) == [f"{i}.png" for i in range(10)]
    assert len(entries()) == 1


def test_waiting_is_told(folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    process = builder(folder, tmp_path / "log", pause=0.1)
    wait_for_lines(tmp_path / "log", 1)
    with caplog.at_level(logging.INFO, logger="rarefl"):
        assert len(load(folder).readable) == 10
    assert "waiting for it" in caplog.text
    assert process.communicate()[0] == "10\n"


def test_a_file_that_may_be_read_again_is_decoded_again(
    folder: Path, decoded: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as closed:
        closed.setattr(os, "access", lambda path, mode: Path(path).name != "0.png")
        load(folder)
    load(folder)
    assert len(decoded) == 20
    assert len(entries()) == 1
