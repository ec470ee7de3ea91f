"""Convolution, batch normalisation, max pooling and ReLU of images in one training step on the CPU.

The first block of a network makes its largest map, at full resolution. Its input has one or three channels,
so batch normalisation need not see that map. With a patch p (the pixels under the kernel, and a constant 1
for the bias) and the filter w of a channel, a value of the map is w·p. Hence the channel's mean is w·E[p] and
its second moment wᵀE[p pᵀ]w: one small matrix serves all channels. Scale and shift of the normalisation go
into the filters, and the map is made and pooled a few images at a time, in the cache.

The backward pass (batch normalisation, arXiv 1502.03167, section 3) uses the same matrix. With g the gradient
at the pooled positions, A = Σ g p, x̂ the normalised map, and γ, β, σ the scale, shift and deviation of a
channel,

    dβ = Σ g,    dγ = Σ g x̂,    dw = γ/σ (A - dβ E[p] - dγ E[x̂ p]),
    E[x̂ p] = (E[p pᵀ] w - (w·E[p]) E[p]) / σ.

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


def conv_norm_pool_relu(images: Tensor, conv: nn.Conv2d, norm: nn.BatchNorm2d) -> Tensor:
    """Return ``relu(max_pool2d(norm(conv(images)), 2))`` of float images (N, C, H, W), H and W at least 2.

    The convolution has a bias, stride 1, an odd kernel and padding that keeps the size; ``norm`` is in
    training mode, and its running statistics move as usual. No gradient reaches the images. Sums are in
    float32 also under autocast, which decides on the type of the result alone.
    """
    autocast = torch.is_autocast_enabled("cpu")
    dtype = torch.get_autocast_dtype("cpu") if autocast else torch.float32
    with torch.autocast("cpu", enabled=False):
        patches = _patches(images.float(), conv.kernel_size[0])
        layers = (conv.weight, conv.bias, norm.weight, norm.bias)
        result, mean, variance = _ConvNormPoolRelu.apply(patches, *layers, norm.eps, dtype)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.num_batches_tracked is not None
    assert norm.momentum is not None
    pixels = patches.shape[:3].numel()
    norm.running_mean.lerp_(mean, norm.momentum)
    norm.running_var.lerp_(variance * (pixels / (pixels - 1)), norm.momentum)
    norm.num_batches_tracked.add_(1)
    return result


def _with_bias(weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return the filters that belong to patches: (out, C * kernel * kernel + 1)."""
    assert bias is not None
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
    """Yield the maps (n, out, H, W) of a few images at a time, channels last, all in the same memory."""
    columns = filters.T.contiguous()
    memory = patches.new_empty(_TOGETHER * patches.shape[1] * patches.shape[2], len(filters))
    for part in patches.split(_TOGETHER):
        rows = part.view(-1, part.shape[-1])
        maps = torch.mm(rows, columns, out=memory[: len(rows)])
        yield maps.view(*part.shape[:3], -1).permute(0, 3, 1, 2)


def _empty_result(patches: Tensor, channels: int, dtype: torch.dtype) -> Tensor:
    count, height, width, _ = patches.shape
    shape = (count, channels, height // 2, width // 2)
    return torch.empty(shape, dtype=dtype, memory_format=torch.channels_last)


def _rows(maps: Tensor) -> Tensor:
    """Return channels-last maps (n, out, H, W) as rows of pixels (n, H * W, out), a view."""
    return maps.permute(0, 2, 3, 1).flatten(1, 2)


class _ConvNormPoolRelu(torch.autograd.Function):
    """Patches and the layers' parameters to the block's result, batch means and biased batch variances."""

    @staticmethod
    def forward(
        ctx: Any,
        patches: Tensor,
        weight: Tensor,
        bias: Tensor,
        gamma: Tensor,
        beta: Tensor,
        eps: float,
        dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor, Tensor]:
        moments = _moments(patches)
        filters = _with_bias(weight, bias).double()
        mean = filters @ moments[-1]
        variance = ((filters @ moments) * filters).sum(1).sub_(mean * mean).clamp_(min=0.0)
        inverse = (variance + eps).rsqrt()
        scale = gamma * inverse
        normalising = filters * scale[:, None]
        normalising[:, -1] += beta - scale * mean

        result = _empty_result(patches, len(filters), dtype)
        winners = []
        for part, maps in zip(result.split(_TOGETHER), _maps(patches, normalising.float()), strict=True):
            pooled, positions = F.max_pool2d(maps, 2, return_indices=True)
            part.copy_(pooled.relu_())
            winners.append(positions)
        ctx.save_for_backward(patches, result, moments, filters, mean, inverse, scale, *winners)
        ctx.weight_shape = weight.shape
        means, variances = mean.float(), variance.float()
        ctx.mark_non_differentiable(means, variances)
        return result, means, variances

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        patches, result, moments, filters, mean, inverse, scale, *winners = ctx.saved_tensors
        with torch.autocast("cpu", enabled=False):
            total = _gradient_moments(patches, grad, result, winners)
        beta = total[:, -1]
        gamma = inverse * ((filters * total).sum(1) - mean * beta)
        normalised = inverse[:, None] * (filters @ moments - torch.outer(mean, moments[-1]))
        change = scale[:, None] * (total - torch.outer(beta, moments[-1]) - gamma[:, None] * normalised)
        weight = change[:, :-1].float().view(ctx.weight_shape)
        # Normalisation takes the bias out again, so its gradient is zero.
        bias = torch.zeros_like(beta, dtype=torch.float32)
        return None, weight, bias, gamma.float(), beta.float(), None, None


def _gradient_moments(patches: Tensor, grad: Tensor, result: Tensor, winners: list[Tensor]) -> Tensor:
    """Return Σ g p in float64, (out, patch size), g the gradient at the winners of the pooling windows."""
    channels, size = grad.shape[1], patches.shape[-1]
    total = torch.zeros(size, channels, dtype=torch.float64)
    memory = patches.new_empty(_TOGETHER, patches.shape[1] * patches.shape[2], channels)
    pieces = zip(*(tensor.split(_TOGETHER) for tensor in (patches, grad, result)), winners, strict=True)
    for part, upper, active, positions in pieces:
        lower = memory[: len(part)].zero_()
        # ReLU's derivative is the sign of its result.
        lower.scatter_(1, _rows(positions), _rows((upper * active.sign()).float()))
        total += part.view(-1, size).T @ lower.view(-1, channels)
    return total.T
