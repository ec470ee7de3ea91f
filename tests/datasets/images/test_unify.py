"""Channels and sizes of a whole data set."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torchvision.transforms.v2 import functional as transforms

from datasets.base import DataCard, ImageDataset, ImageSplit, LoadOptions, Sites
from datasets.images import unify as unifying
from datasets.images.unify import resize, unify
from datasets.registry import load_dataset

GREY = DataCard("grey", "Grey", "nowhere", "none", ("a", "b"), mean=(0.4,), std=(0.2,))


def dataset(channels: int = 1, size: int = 6, card: DataCard = GREY) -> ImageDataset:
    def split(count: int) -> ImageSplit:
        images = np.random.default_rng(count).integers(0, 256, (count, channels, size, size), dtype=np.uint8)
        return ImageSplit(torch.from_numpy(images), np.arange(count, dtype=np.int64) % 2)

    zeros = np.zeros(5, dtype=np.int64)
    return ImageDataset(card, split(5), split(3), Sites(("one",), zeros, zeros[:3]), zeros, ("gone.png",))


@pytest.mark.parametrize("options", [LoadOptions(), LoadOptions(image_size=6)])
def test_what_fits_is_not_touched(options: LoadOptions) -> None:
    published = dataset()
    assert unify(published, options) is published


def test_grey_gets_three_equal_channels_in_the_same_memory() -> None:
    published = dataset()
    unified = unify(published, LoadOptions(rgb=True))
    for before, after in ((published.train, unified.train), (published.test, unified.test)):
        assert after.images.shape == (len(before), 3, 6, 6)
        for channel in range(3):
            assert torch.equal(after.images[:, channel], before.images[:, 0])
        assert after.images.data_ptr() == before.images.data_ptr()
        assert after.labels is before.labels
    assert unified.card == replace(GREY, mean=(0.4, 0.4, 0.4), std=(0.2, 0.2, 0.2))
    assert (unified.sites, unified.left_out) == (published.sites, ("gone.png",))
    assert unified.train_groups is published.train_groups


def test_rgb_changes_nothing_on_colour() -> None:
    colour = replace(GREY, mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6))
    published = dataset(channels=3, card=colour)
    assert unify(published, LoadOptions(rgb=True)) is published


@pytest.mark.parametrize("size", [3, 4, 15])
def test_resize_is_antialiased_in_batches(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(unifying, "_BATCH", 2)
    published = dataset(channels=3, size=9)
    unified = unify(published, LoadOptions(image_size=size))
    assert unified.train.images.dtype == torch.uint8
    theirs = transforms.resize(published.train.images.double(), [size, size], antialias=True)
    assert unified.train.images.shape == theirs.shape
    assert (unified.train.images.double() - theirs).abs().max() <= 0.501
    assert unified.card is GREY


def test_resize_worked_out_by_hand() -> None:
    # Halving with antialias weighs 4 neighbours 1, 3, 3, 1; at the border what is outside is left out.
    row = torch.tensor([0, 70, 140, 210], dtype=torch.uint8)
    image = row.expand(4, 4)[None, None].contiguous()
    # (3*0 + 3*70 + 1*140) / 7 = 50 and (1*70 + 3*140 + 3*210) / 7 = 160
    assert resize(image, 2).tolist() == [[[[50, 160], [50, 160]]]]


def test_size_and_channels_come_through_the_registry() -> None:
    digits = load_dataset("digits", LoadOptions(seed=1, image_size=8, rgb=True))
    assert digits.train.images.shape == (1437, 3, 8, 8)
    assert digits.card.mean == (0.305, 0.305, 0.305)
