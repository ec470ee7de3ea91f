"""The first block against the separate layers, whose class it has as a parent."""

import copy

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from learning.models import Block, FirstBlock


def pair(channels, width=8, seed=0):
    """Return a first block and the separate layers in one state; some scales are negative, one zero."""
    draws = torch.Generator().manual_seed(seed)
    block = FirstBlock(channels, width, pool=True)
    with torch.no_grad():
        for value in (*block.parameters(), block.norm.running_mean):
            value.copy_(torch.randn(value.shape, generator=draws))
        block.norm.weight[0] = 0.0
    layers = copy.deepcopy(block)
    layers.__class__ = Block
    return block, layers


def gradients(block, images, upper):
    block.zero_grad()
    result = block(images)
    (result.float() * upper).sum().backward()
    return result, [parameter.grad for parameter in block.parameters()]


def assert_near(first, second, tolerance=1e-5):
    # Relative to the largest entry, as a sum over many pixels may cancel.
    scale = max(float(second.detach().abs().max()), 1.0)
    assert (first - second).abs().max() <= tolerance * scale


@given(count=st.integers(1, 9), channels=st.integers(1, 3), size=st.integers(2, 9), seed=st.integers(0, 100))
@settings(max_examples=40, deadline=None)
def test_values_gradients_and_statistics_are_those_of_the_layers(count, channels, size, seed):
    block, layers = pair(channels, seed=seed)
    draws = torch.Generator().manual_seed(seed + 1)
    images = torch.randn(count, channels, size, size, generator=draws) + 0.5
    upper = torch.randn(count, 8, size // 2, size // 2, generator=draws)
    own, own_gradients = gradients(block, images, upper)
    theirs, their_gradients = gradients(layers, images, upper)
    assert_near(own, theirs, 1e-4)
    # A constant added before normalisation changes nothing: the bias has no gradient.
    assert not own_gradients[1].any()
    scale = sum(float(gradient.abs().max()) for gradient in their_gradients)
    for gradient, other in zip(own_gradients, their_gradients, strict=True):
        assert (gradient - other).abs().max() <= 1e-3 * scale
    for own_buffer, other_buffer in zip(block.buffers(), layers.buffers(), strict=True):
        assert own_buffer.dtype == other_buffer.dtype
        assert_near(own_buffer, other_buffer)


def test_gradients_are_those_of_float64_layers():
    block, layers = pair(1, width=16)
    images = torch.rand(6, 1, 28, 28)
    upper = torch.randn(6, 16, 14, 14)
    _, own = gradients(block, images, upper)
    _, exact = gradients(layers.double(), images.double(), upper.double())
    for position in (0, 2, 3):
        assert_near(own[position], exact[position], 1e-5)


def test_evaluation_mode_uses_running_statistics():
    block, layers = pair(3)
    block.eval(), layers.eval()
    images = torch.rand(7, 3, 12, 12)
    with torch.inference_mode():
        assert_near(block(images), layers(images))
    assert block.norm.num_batches_tracked == 0


def test_images_that_need_a_gradient_get_it():
    for train in (True, False):
        block, layers = pair(1)
        block.train(train), layers.train(train)
        images = torch.rand(2, 1, 6, 6)
        own, other = images.clone().requires_grad_(), images.clone().requires_grad_()
        block(own).sum().backward()
        layers(other).sum().backward()
        assert torch.equal(own.grad, other.grad)


def test_evaluation_mode_gives_the_layers_gradients():
    block, layers = pair(1)
    block.eval(), layers.eval()
    images, upper = torch.rand(2, 1, 6, 6), torch.randn(2, 8, 3, 3)
    for own, other in zip(
        gradients(block, images, upper)[1], gradients(layers, images, upper)[1], strict=True
    ):
        assert torch.equal(own, other)


def test_constant_images_have_no_variance_and_stay_finite():
    block, _ = pair(1)
    result, own = gradients(block, torch.full((3, 1, 2, 2), 0.7), torch.ones(3, 8, 1, 1))
    assert torch.isfinite(result).all()
    assert all(torch.isfinite(gradient).all() for gradient in own)


def test_nan_is_not_hidden():
    block, _ = pair(1)
    with torch.no_grad():
        block.conv.weight[3, 0, 1, 1] = torch.nan
    assert block(torch.rand(2, 1, 6, 6))[:, 3].isnan().all()


def test_autocast_gives_bfloat16_and_float32_gradients():
    block, layers = pair(1)
    images, upper = torch.rand(5, 1, 10, 10), torch.randn(5, 8, 5, 5)
    with torch.autocast("cpu", torch.bfloat16):
        result, own = gradients(block, images, upper)
    _, exact = gradients(layers, images, upper)
    assert result.dtype == torch.bfloat16
    for gradient, other in zip(own, exact, strict=True):
        assert gradient.dtype == torch.float32
        assert_near(gradient, other, 0.02)


def test_result_is_channels_last():
    block, _ = pair(1)
    with torch.no_grad():
        result = block(torch.rand(5, 1, 10, 10))
    assert result.is_contiguous(memory_format=torch.channels_last)
