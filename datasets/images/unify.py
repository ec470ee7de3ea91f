"""Channels and sizes: the one place in which images are made to fit a model on purpose."""

from dataclasses import replace

import torch
from torch.nn import functional as F

from datasets.base import DataCard, ImageDataset, ImageSplit, LoadOptions

_BATCH = 512
_COLOURS = 3


def unify(dataset: ImageDataset, options: LoadOptions) -> ImageDataset:
    """Return the data set with images of the size and the channels that the options ask for.

    What already fits is the same object, not a copy. ``options.rgb`` changes nothing on colour images.
    """
    splits = [dataset.train, dataset.test]
    if options.image_size:
        splits = [_with_images(split, resize(split.images, options.image_size)) for split in splits]
    card = dataset.card
    if options.rgb and len(card.mean) == 1:
        # Three views of the same pixels; nothing is written to them, and no memory is taken.
        splits = [_with_images(split, split.images.expand(-1, _COLOURS, -1, -1)) for split in splits]
        card = in_colours(card)
    train, test = splits
    if card is dataset.card and train is dataset.train and test is dataset.test:
        return dataset
    return replace(dataset, card=card, train=train, test=test)


def resize(images: torch.Tensor, size: int) -> torch.Tensor:
    """Return images, uint8 (N, C, H, W), at (N, C, size, size); the same tensor if they have that size.

    Bilinear with antialias, in batches, so that no second copy in floating point is in memory.
    """
    if images.shape[-2:] == (size, size):
        return images
    resized = torch.empty((*images.shape[:2], size, size), dtype=torch.uint8)
    for start in range(0, len(images), _BATCH):
        batch = images[start : start + _BATCH].float()
        smooth = F.interpolate(batch, size=(size, size), mode="bilinear", align_corners=False, antialias=True)
        resized[start : start + _BATCH] = smooth.round_().clamp_(0, 255).to(torch.uint8)
    return resized


def in_colours(card: DataCard) -> DataCard:
    """Return the card of grayscale images with the mean and deviation for three equal channels."""
    return replace(card, mean=card.mean * _COLOURS, std=card.std * _COLOURS)


def _with_images(split: ImageSplit, images: torch.Tensor) -> ImageSplit:
    return split if images is split.images else replace(split, images=images)
