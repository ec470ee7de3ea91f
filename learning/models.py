"""Image classifiers. Their initial weights are a function of an explicit generator alone."""

import copy
from functools import lru_cache
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights

from datasets.names import unknown
from learning.errors import UnknownModelError
from learning.first_block import conv_norm_pool_relu
from learning.initial_values import initialise, require_stated


class ImageClassifier(nn.Module):
    """A network whose last layer is linear: ``forward(x) == head(embed(x))``.

    The first line of a model's docstring says what it is, and ``paper`` where it was published.
    """

    paper: ClassVar[str]
    head: nn.Linear

    @property
    def feature_size(self) -> int:
        """Return D, the number of features that ``embed`` gives for an image."""
        return self.head.in_features

    def embed(self, images: Tensor) -> Tensor:
        """Return the features (N, D), inputs of the last layer, of normalised images (N, C, H, W)."""
        raise NotImplementedError

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits (N, classes)."""
        logits: Tensor = self.head(self.embed(images))
        return logits


class BatchNorm2d(nn.BatchNorm2d):
    """Batch normalisation that uses its running statistics where a channel has one value only.

    That happens with one image on a 1 x 1 map, the last batch of a set of k * batch + 1 images; the variance
    of a single value is not defined and PyTorch's own layer raises.
    """

    def forward(self, maps: Tensor) -> Tensor:
        """Return the normalised maps, (N, channels, H, W)."""
        if self.training and maps.shape[0] * maps.shape[2] * maps.shape[3] == 1:
            return F.batch_norm(
                maps,
                self.running_mean,
                self.running_var,
                self.weight,
                self.bias,
                training=False,
                eps=self.eps,
            )
        return super().forward(maps)


class Block(nn.Module):
    """3 x 3 convolution, batch normalisation, ReLU and, with ``pool``, 2 x 2 max pooling.

    Pooling comes before ReLU: both orders give the same values and gradients, this one with a quarter of the
    work for ReLU.
    """

    def __init__(self, in_channels: int, out_channels: int, pool: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1)
        self.norm = BatchNorm2d(out_channels)
        self.pool = pool

    def forward(self, maps: Tensor) -> Tensor:
        """Return the block's maps of (N, in_channels, H, W)."""
        separate = self.training or torch.is_grad_enabled()
        maps = self.norm(self.conv(maps)) if separate else self._fused(maps)
        if self.pool:
            maps = F.max_pool2d(maps, 2)
        return F.relu(maps, inplace=True)

    def _fused(self, maps: Tensor) -> Tensor:
        """Return norm(conv(maps)) with the fixed scale and shift of the normalisation in the filters."""
        conv, norm = self.conv, self.norm
        assert norm.running_mean is not None
        assert norm.running_var is not None
        weight, bias = fuse_conv_bn_weights(
            conv.weight, conv.bias, norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias
        )
        return F.conv2d(maps, weight, bias, padding=conv.padding)


class FirstBlock(Block):
    """A block on images; in training on a CPU it never holds its large map, which makes a step faster."""

    def forward(self, maps: Tensor) -> Tensor:
        """Return the block's maps of the images."""
        if self.training and self.pool and maps.device.type == "cpu" and not maps.requires_grad:
            return conv_norm_pool_relu(maps, self.conv, self.norm)
        return super().forward(maps)


class Cnn4(ImageClassifier):
    """Four blocks of 3 x 3 convolution with 64 channels and a linear layer, as in FairFAL's experiments.

    Maps of 28 pixels shrink to 14, 7, 3 and 1, so that D is 64; of 32 pixels to 16, 8, 4 and 2, D 256. A map
    of one pixel is not pooled, so that images may be of any size.
    """

    paper = "arXiv 2603.10341"

    def __init__(self, in_channels: int, image_size: int, num_classes: int, width: int = 64) -> None:
        super().__init__()
        self.blocks = nn.Sequential()
        size = image_size
        for position in range(4):
            block = Block if position else FirstBlock
            self.blocks.append(block(width if position else in_channels, width, pool=size > 1))
            size = max(size // 2, 1)
        self.head = nn.Linear(width * size * size, num_classes)

    def embed(self, images: Tensor) -> Tensor:
        """Return the features (N, D)."""
        maps: Tensor = self.blocks(images)
        return maps.flatten(1)


MODELS: dict[str, type[ImageClassifier]] = {"cnn4": Cnn4}
"""Each model by the name that the run config uses; a class takes (in_channels, image_size, num_classes)."""


def build_model(
    name: str, in_channels: int, image_size: int, num_classes: int, generator: torch.Generator
) -> ImageClassifier:
    """Return the named model for square images, on the CPU, with weights drawn from ``generator``.

    Raises
    ------
    UnknownModelError
        If no model has that name.
    ModelLayerError
        If a layer of the model cannot get its initial values from the generator alone.
    """
    model = _allocate(name, in_channels, image_size, num_classes)
    initialise(model, generator)
    nn.init.zeros_(model.head.bias)
    return model.to(memory_format=torch.channels_last)


def empty_model(name: str, in_channels: int, image_size: int, num_classes: int) -> ImageClassifier:
    """Return the model of :func:`build_model` without values, for ``load_arrays``, which sets all of them.

    Until then its parameters and buffers hold whatever lay in the memory. Errors as of ``build_model``.
    """
    return _allocate(name, in_channels, image_size, num_classes).to(memory_format=torch.channels_last)


def _allocate(name: str, in_channels: int, image_size: int, num_classes: int) -> ImageClassifier:
    if name not in MODELS:
        raise UnknownModelError(unknown("model", name, MODELS))
    model = MODELS[name]
    return copy.deepcopy(
        _template(model, in_channels, image_size, num_classes)  # type: ignore[arg-type]  # it is hashable
    )


@lru_cache(maxsize=4)
def _template(
    model: type[ImageClassifier], in_channels: int, image_size: int, num_classes: int
) -> ImageClassifier:
    """Return a model without values, of which only copies are handed out: a copy takes half as long."""
    # On the meta device a constructor draws nothing, so the global generator stays as it is.
    with torch.device("meta"):
        template = model(in_channels, image_size, num_classes)
    require_stated(template)
    return template.to_empty(device="cpu")
