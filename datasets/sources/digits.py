"""scikit-learn's handwritten digits: 1,797 small images that come with the library, for quick runs."""

import numpy as np
import torch

from datasets.base import DataCard, ImageDataset, ImageSplit, LoadOptions
from datasets.randomness import generator

CARD = DataCard(
    name="digits",
    title="Optical recognition of handwritten digits",
    source="UCI Machine Learning Repository (doi 10.24432/C50P49), as shipped with scikit-learn",
    licence="CC BY 4.0",
    class_names=tuple("0123456789"),
    mean=(0.305,),
    std=(0.319,),
)

IMAGE_SIZE = 16
"""Side in pixels. The published 8x8 images are too small for the four poolings of ``cnn4``."""

TEST_SHARE = 0.2
_BRIGHTEST = 16  # the published pixels count dark cells of a 4x4 block


def load(options: LoadOptions) -> ImageDataset:
    """Return the digits at 16x16 pixels with a stratified test split of 20 % that the seed alone decides.

    The root is not used: the images come with scikit-learn.
    """
    # Imported here because it takes a second that the other data sets need not pay.
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    pixels = torch.from_numpy(digits.images).float().unsqueeze(1) * (255 / _BRIGHTEST)
    resized = torch.nn.functional.interpolate(
        pixels, size=(IMAGE_SIZE, IMAGE_SIZE), mode="bilinear", align_corners=False
    )
    images = resized.round().to(torch.uint8)
    labels = digits.target.astype(np.int64)
    split_seed = int(generator(options.seed, "digits test split").integers(2**31))
    train_ids, test_ids = train_test_split(
        np.arange(len(labels)), test_size=TEST_SHARE, stratify=labels, random_state=split_seed
    )
    return ImageDataset(
        card=CARD,
        train=ImageSplit(images[torch.from_numpy(train_ids)], labels[train_ids]),
        test=ImageSplit(images[torch.from_numpy(test_ids)], labels[test_ids]),
    )
