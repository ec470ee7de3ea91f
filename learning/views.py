"""From stored images to what a network sees: flips and normalisation of whole batches on their device."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Normalisation:
    """Mean and standard deviation of each channel, of values in [0, 1]."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


def normalise(images: Tensor, normalisation: Normalisation) -> Tensor:
    """Return (images / 255 - mean) / std in float32, channels last.

    Parameters
    ----------
    images
        uint8, (N, C, H, W), on any device.

    Raises
    ------
    ValueError
        If the images are of another type, or have another number of channels than the normalisation.
    """
    channels = len(normalisation.mean)
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != channels:
        raise ValueError(
            f"expected uint8 images of shape (N, {channels}, H, W), got {images.dtype} {tuple(images.shape)}"
        )
    mean = torch.tensor(normalisation.mean, device=images.device).view(1, -1, 1, 1)
    std = torch.tensor(normalisation.std, device=images.device).view(1, -1, 1, 1)
    values = images.to(torch.float32, memory_format=torch.channels_last)
    return values.mul_(1 / (255 * std)).sub_(mean / std)


def flip(images: Tensor, flipped: Tensor) -> Tensor:
    """Return images (N, C, H, W), mirrored left to right where ``flipped`` (N,) is true."""
    return torch.where(flipped[:, None, None, None], images.flip(-1), images)
