"""Convolution, batch normalisation and max pooling of images in one step on the CPU.

The first block of a network makes its largest map, at full resolution. Its input has one or three channels,
so batch normalisation need not see that map. With a patch p (the pixels under the kernel, and a constant 1
for the bias) and the filter w of a channel, a value of the map is w·p. Hence the channel's mean is w·E[p] and
its second moment wᵀE[p pᵀ]w: one small matrix serves all channels. Scale and shift of the normalisation go
into the filters, and the map is made and pooled a few images at a time, in the cache.

The backward pass (batch normalisation, arXiv 1502.03167, section 3) uses the same matrix. With g the gradient
at the pooled positions, A = Σ g p, x̂ the normalised map, and γ, β, σ the channel's scale, shift and deviation,

    dβ = Σ g,    dγ = Σ g x̂,    dw = γ/σ (A - dβ E[p] - dγ E[x̂ p]),    E[x̂ p] = (E[p pᵀ] w - (w·E[p]) E[p]) / σ.

All of it equals the separate layers up to rounding; the moments are kept in float64.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

# Images whose maps are made together: four maps of 28 x 28 pixels and 64 channels are 0.8 MB, less than the
# second-level cache of a core.
_TOGETHER = 4


def conv_norm_pool(images: Tensor, conv: nn.Conv2d, norm: nn.BatchNorm2d) -> Tensor:
    """Return ``max_pool2d(norm(conv(images)), 2)`` of images (N, C, H, W), in float32 also under autocast.

    The convolution has a bias, stride 1, an odd kernel and padding that keeps the size; H and W are at least
    2. In training mode the running statistics move as those of ``norm`` would. No gradient reaches the images,
    and none the layers in evaluation mode.
    """
    with torch.autocast("cpu", enabled=False):
        patches = _patches(images.float(), conv.kernel_size[0])
        if not norm.training:
            return _evaluate(patches, conv, norm)
        layers = (conv.weight, conv.bias, norm.weight, norm.bias)
        pooled, mean, variance = _ConvNormPool.apply(patches, *layers, norm.eps)
    pixels = patches.shape[:3].numel()
    norm.running_mean.lerp_(mean, norm.momentum)
    norm.running_var.lerp_(variance * (pixels / (pixels - 1)), norm.momentum)
    norm.num_batches_tracked.add_(1)
    return pooled


@torch.no_grad()
def _evaluate(patches: Tensor, conv: nn.Conv2d, norm: nn.BatchNorm2d) -> Tensor:
    scale = norm.weight * (norm.running_var + norm.eps).rsqrt()
    filters = _with_bias(conv.weight, conv.bias) * scale[:, None]
    filters[:, -1] += norm.bias - scale * norm.running_mean
    return torch.cat([F.max_pool2d(part, 2) for part in _maps(patches, filters)])


def _with_bias(weight: Tensor, bias: Tensor) -> Tensor:
    """Return the filters that belong to patches: (out, C * kernel * kernel + 1)."""
    return torch.cat([weight.flatten(1), bias[:, None]], dim=1)


def _patches(images: Tensor, kernel: int) -> Tensor:
    """Return every zero-padded patch followed by a 1: (N, H, W, C * kernel * kernel + 1)."""
    count, channels, height, width = images.shape
    padded = F.pad(images, (kernel // 2,) * 4)
    patches = images.new_ones(count, height, width, channels * kernel * kernel + 1)
    windows = patches[..., :-1].unflatten(-1, (channels, kernel, kernel))
    for row in range(kernel):
        for column in range(kernel):
            window = padded[:, :, row : row + height, column : column + width]
            windows[..., row, column] = window.permute(0, 2, 3, 1)
    return patches


def _moments(patches: Tensor) -> Tensor:
    """Return E[p pᵀ] in float64; its last row is E[p], as the last entry of p is 1."""
    size = patches.shape[-1]
    total = torch.zeros(size, size, dtype=torch.float64)
    for part in patches.split(_TOGETHER):
        rows = part.view(-1, size).double()
        total.addmm_(rows.T, rows)
    return total / patches.shape[:3].numel()


def _maps(patches: Tensor, filters: Tensor) -> Iterator[Tensor]:
    """Yield the maps of a few images at a time, (n, out, H, W) in channels-last order."""
    columns = filters.T.contiguous()
    for part in patches.split(_TOGETHER):
        rows = part.view(-1, part.shape[-1]) @ columns
        yield rows.view(*part.shape[:3], -1).permute(0, 3, 1, 2)


class _ConvNormPool(torch.autograd.Function):
    """Patches and the layers' parameters to the pooled map, batch means and biased batch variances."""

    @staticmethod
    def forward(
        ctx: Any, patches: Tensor, weight: Tensor, bias: Tensor, gamma: Tensor, beta: Tensor, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        moments = _moments(patches)
        filters = _with_bias(weight, bias).double()
        mean = filters @ moments[-1]
        variance = ((filters @ moments) * filters).sum(1).sub_(mean * mean).clamp_(min=0.0)
        inverse = (variance + eps).rsqrt()
        scale = gamma * inverse
        normalising = filters * scale[:, None]
        normalising[:, -1] += beta - scale * mean

        pooled, positions = zip(
            *(F.max_pool2d(part, 2, return_indices=True) for part in _maps(patches, normalising.float())),
            strict=True,
        )
        ctx.save_for_backward(patches, moments, filters, mean, inverse, scale, *positions)
        ctx.weight_shape = weight.shape
        means, variances = mean.float(), variance.float()
        ctx.mark_non_differentiable(means, variances)
        return torch.cat(pooled), means, variances

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        patches, moments, filters, mean, inverse, scale, *positions = ctx.saved_tensors
        with torch.autocast("cpu", enabled=False):
            total = _gradient_moments(patches, grad.float(), positions)
        beta = total[:, -1]
        gamma = inverse * ((filters * total).sum(1) - mean * beta)
        normalised = inverse[:, None] * (filters @ moments - torch.outer(mean, moments[-1]))
        change = scale[:, None] * (total - torch.outer(beta, moments[-1]) - gamma[:, None] * normalised)
        weight = change[:, :-1].float().view(ctx.weight_shape)
        return None, weight, change[:, -1].float(), gamma.float(), beta.float(), None


def _gradient_moments(patches: Tensor, grad: Tensor, positions: list[Tensor]) -> Tensor:
    """Return Σ g p in float64, (out, patch size): the gradient at the positions that won their pooling window."""
    channels, pixels = grad.shape[1], patches.shape[1] * patches.shape[2]
    total = torch.zeros(channels, patches.shape[-1], dtype=torch.float64)
    sparse = grad.new_empty(_TOGETHER, pixels, channels)
    for part, piece, winners in zip(patches.split(_TOGETHER), grad.split(_TOGETHER), positions, strict=True):
        filled = sparse[: len(part)].zero_()
        filled.scatter_(1, _rows(winners), _rows(piece))
        total += (part.view(-1, part.shape[-1]).T @ filled.view(-1, channels)).T
    return total


def _rows(maps: Tensor) -> Tensor:
    """Return maps (N, out, H, W) as rows of pixels (N, H * W, out); a view for channels-last maps."""
    return maps.permute(0, 2, 3, 1).flatten(1, 2)
