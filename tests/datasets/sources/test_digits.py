"""The digits of scikit-learn."""

import numpy as np
import torch

from datasets.base import LoadOptions
from datasets.sources import digits


def test_images_are_bytes_of_16_by_16_pixels() -> None:
    dataset = digits.load(LoadOptions(seed=1))
    assert dataset.num_classes == 10
    assert dataset.train.images.shape == (1437, 1, 16, 16)
    assert dataset.test.images.shape == (360, 1, 16, 16)
    assert dataset.train.images.dtype == torch.uint8
    assert dataset.train.images.min() == 0
    assert dataset.train.images.max() == 255
    assert dataset.train.labels.dtype == np.int64


def test_card_holds_the_mean_and_deviation_of_the_pixels() -> None:
    pixels = digits.load(LoadOptions(seed=1)).train.images.double() / 255
    assert abs(pixels.mean().item() - digits.CARD.mean[0]) < 0.003
    assert abs(pixels.std().item() - digits.CARD.std[0]) < 0.003


def test_test_split_is_stratified() -> None:
    dataset = digits.load(LoadOptions(seed=1))
    train, test = np.bincount(dataset.train.labels), np.bincount(dataset.test.labels)
    assert np.abs(test / (train + test) - 0.2).max() < 0.005


def test_test_split_is_a_function_of_the_seed() -> None:
    first, again, other = (digits.load(LoadOptions(seed=seed)).test for seed in (1, 1, 2))
    assert torch.equal(first.images, again.images)
    assert np.array_equal(first.labels, again.labels)
    assert not np.array_equal(first.labels, other.labels)


def test_every_image_is_in_one_split() -> None:
    def images(seed: int) -> list[bytes]:
        dataset = digits.load(LoadOptions(seed=seed))
        return sorted(
            image.numpy().tobytes() for image in torch.cat([dataset.train.images, dataset.test.images])
        )

    assert images(1) == images(2)
    assert len(images(1)) == 1797
