import copy
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from datasets.randomness import torch_generator
from learning.errors import UnknownModelError
from learning.models import BatchNorm2d, Block, build_model


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(
    ("channels", "size", "classes", "parameters", "features"),
    [
        (1, 28, 10, 112_586, 64),
        (3, 32, 10, 115_658, 256),
        (3, 32, 100, 138_788, 256),
        (1, 28, 4, 112_196, 64),
        (3, 28, 7, 113_543, 64),
        (3, 64, 10, 112_586 + 2 * 9 * 64 + 960 * 10, 1024),
    ],
)
def test_sizes_of_the_network(channels, size, classes, parameters, features):
    model = build_model("cnn4", channels, size, classes, generator())
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert sum(b.numel() for b in model.buffers()) == 516
    assert model.feature_size == features
    images = torch.rand(2, channels, size, size)
    embedded = model.embed(images)
    assert embedded.shape == (2, features)
    assert (embedded >= 0).all()


def test_forward_is_the_head_on_the_features():
    model = build_model("cnn4", 1, 28, 10, generator()).eval()
    images = torch.rand(3, 1, 28, 28)
    assert torch.equal(model(images), model.head(model.embed(images)))


def test_weights_depend_on_the_generator_alone():
    torch.manual_seed(1)
    first = build_model("cnn4", 1, 28, 10, generator(7)).state_dict()
    torch.manual_seed(2)
    second = build_model("cnn4", 1, 28, 10, generator(7)).state_dict()
    other = build_model("cnn4", 1, 28, 10, generator(8)).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["blocks.0.conv.weight"], other["blocks.0.conv.weight"])


def test_global_generators_stay_as_they_are():
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    build_model("cnn4", 1, 28, 10, generator())
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert (np.random.get_state()[1] == numpy_state).all()  # noqa: NPY002


def test_initial_weights_are_those_of_pytorch():
    """The same draws in the same order as PyTorch's constructors give; the last bias is then set to zero."""
    torch.manual_seed(11)
    layers = []
    for channels in (3, 64, 64, 64):
        layers += [nn.Conv2d(channels, 64, 3, padding=1), nn.BatchNorm2d(64)]
    reference = nn.Sequential(*layers, nn.Linear(256, 10))
    nn.init.zeros_(reference[-1].bias)
    model = build_model("cnn4", 3, 32, 10, generator(11))
    for own, theirs in zip(model.state_dict().values(), reference.state_dict().values(), strict=True):
        assert own.dtype == theirs.dtype
        assert torch.equal(own, theirs)


def test_unknown_model_names_the_known_ones():
    with pytest.raises(UnknownModelError, match=r"'resnet'.*cnn4"):
        build_model("resnet", 1, 28, 10, generator())


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 15])
def test_small_images_skip_pooling_at_one_pixel(size):
    model = build_model("cnn4", 1, size, 2, generator())
    assert model(torch.rand(4, 1, size, size)).shape == (4, 2)
    pools = sum(block.pool for block in model.blocks)
    assert pools == min(4, int(math.log2(size)))


def test_one_image_on_a_one_pixel_map_trains():
    model = build_model("cnn4", 1, 8, 2, generator()).train()
    loss = F.cross_entropy(model(torch.rand(1, 1, 8, 8)), torch.tensor([1]))
    loss.backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())


def test_norm_of_a_single_value_uses_running_statistics():
    norm = BatchNorm2d(2).train()
    norm.running_mean.copy_(torch.tensor([1.0, 2.0]))
    norm.running_var.copy_(torch.tensor([4.0, 9.0]))
    result = norm(torch.tensor([3.0, 8.0]).view(1, 2, 1, 1))
    assert result.flatten().tolist() == pytest.approx([1.0, 2.0], abs=1e-5)
    assert norm.running_mean.tolist() == [1.0, 2.0]
    assert norm.num_batches_tracked == 0


def test_norm_of_two_values_is_that_of_pytorch():
    values = torch.rand(2, 3, 1, 1)
    assert torch.equal(BatchNorm2d(3)(values), nn.BatchNorm2d(3)(values))


def test_pooling_before_relu_has_the_values_and_gradients_of_relu_before_pooling():
    block = Block(2, 4, pool=True)
    reference = copy.deepcopy(block)
    # Whole numbers, so that many pixels of a window tie.
    maps = torch.randint(-2, 3, (3, 2, 6, 6)).float()
    own_input, their_input = maps.clone().requires_grad_(), maps.clone().requires_grad_()
    own = block(own_input)
    theirs = F.max_pool2d(F.relu(reference.norm(reference.conv(their_input))), 2)
    upper = torch.randn(own.shape)
    own.backward(upper)
    theirs.backward(upper)
    assert torch.equal(own, theirs)
    assert torch.equal(own_input.grad, their_input.grad)
    for parameter, other in zip(block.parameters(), reference.parameters(), strict=True):
        assert torch.equal(parameter.grad, other.grad)


def test_prediction_with_fused_normalisation_equals_the_separate_layers() -> None:
    model = build_model("cnn4", 1, 28, 10, torch_generator(1, "weights"))
    images = torch.rand(8, 1, 28, 28, generator=torch_generator(1, "images"))
    model.train()
    for _ in range(3):
        model(images)
    model.eval()
    separate = model(images)
    with torch.inference_mode():
        fused = model(images)
    torch.testing.assert_close(fused, separate, rtol=1e-4, atol=1e-5)
