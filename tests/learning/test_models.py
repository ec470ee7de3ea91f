import copy
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from datasets.randomness import torch_generator
from learning.arrays import load_arrays, to_arrays
from learning.errors import ModelLayerError, UnknownModelError
from learning.models import MODELS, BatchNorm2d, Block, ImageClassifier, build_model, empty_model


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


@pytest.mark.parametrize("name", MODELS)
def test_every_model_says_what_it_is_and_where_it_was_published(name: str) -> None:
    model = MODELS[name]
    assert (model.__doc__ or "").splitlines()[0].endswith(".")
    assert model.paper


@pytest.mark.parametrize("name", MODELS)
def test_a_loaded_empty_model_is_the_built_one(name: str) -> None:
    built = build_model(name, 3, 16, 5, generator(3))
    loaded = empty_model(name, 3, 16, 5)
    load_arrays(loaded, to_arrays(built))
    images = torch.rand(4, 3, 16, 16)
    assert torch.equal(built(images), loaded(images))
    for ours, theirs in zip(loaded.state_dict().values(), built.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs)
        assert ours.stride() == theirs.stride()


def test_an_empty_model_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    state = torch.get_rng_state()
    monkeypatch.setattr("learning.models.initialise", lambda *_: pytest.fail("values were drawn"))
    empty_model("cnn4", 1, 28, 10)
    assert torch.equal(torch.get_rng_state(), state)
    with pytest.raises(UnknownModelError, match="'cnn5'; did you mean 'cnn4'"):
        empty_model("cnn5", 1, 28, 10)


class Constant(nn.Module):
    """A layer whose only value is set by its constructor."""

    def __init__(self, persistent: bool = True) -> None:
        super().__init__()
        self.register_buffer("scale", torch.full((2,), 3.0), persistent=persistent)


class HalfReset(Constant):
    """A layer that fills nothing when it is asked to."""

    def reset_parameters(self) -> None:
        pass


def test_two_models_share_no_memory() -> None:
    first, second = (empty_model("cnn4", 1, 8, 3).state_dict() for _ in range(2))
    for name, tensor in first.items():
        assert tensor.data_ptr() != second[name].data_ptr()


def model_with(monkeypatch: pytest.MonkeyPatch, layer: type[nn.Module], *arguments: object) -> None:
    """Register a model "other" with this layer before its head."""

    class Other(ImageClassifier):
        def __init__(self, in_channels: int, image_size: int, num_classes: int) -> None:
            super().__init__()
            self.layer = layer(*arguments)
            self.head = nn.Linear(4, num_classes)

    monkeypatch.setitem(MODELS, "other", Other)


@pytest.mark.parametrize(
    ("layer", "arguments"),
    [
        (nn.GroupNorm, (2, 4)),
        (nn.LayerNorm, (4,)),
        (nn.BatchNorm1d, (4,)),
        (nn.BatchNorm3d, (4,)),
        (nn.PReLU, (3,)),
    ],
)
def test_layers_without_draws_have_the_values_of_their_constructor(
    monkeypatch: pytest.MonkeyPatch, layer: type[nn.Module], arguments: tuple[object, ...]
) -> None:
    model_with(monkeypatch, layer, *arguments)
    built, reference = build_model("other", 1, 8, 3, generator()).layer, layer(*arguments)
    assert len(reference.state_dict()) > 0
    for own, theirs in zip(built.state_dict().values(), reference.state_dict().values(), strict=True):
        assert own.dtype == theirs.dtype
        assert torch.equal(own, theirs)


@pytest.mark.parametrize(
    ("layer", "arguments"),
    [
        (nn.Conv1d, (4, 6, 3)),
        (nn.Conv2d, (4, 6, 3, 1, 0, 1, 2)),
        (nn.ConvTranspose2d, (4, 6, 3)),
        (nn.ConvTranspose2d, (4, 6, 3, 1, 0, 0, 2)),
        (nn.Linear, (4, 5)),
        (nn.Linear, (4, 5, False)),
    ],
)
def test_drawn_layers_have_the_draws_of_pytorch(
    monkeypatch: pytest.MonkeyPatch, layer: type[nn.Module], arguments: tuple[object, ...]
) -> None:
    model_with(monkeypatch, layer, *arguments)
    torch.manual_seed(11)
    reference = layer(*arguments)
    built = build_model("other", 1, 8, 3, generator(11)).layer
    for own, theirs in zip(built.state_dict().values(), reference.state_dict().values(), strict=True):
        assert torch.equal(own, theirs)


@pytest.mark.parametrize(
    ("layer", "arguments", "parts"),
    [
        (nn.Embedding, (5, 4), ["layer (Embedding) draws", "global generator"]),
        (nn.LSTM, (4, 4), ["layer (LSTM) draws"]),
        (nn.MultiheadAttention, (4, 2), ["layer (MultiheadAttention) has no reset_parameters", "in_proj"]),
        (Constant, (), ["layer (Constant) has no reset_parameters that would fill scale"]),
        (HalfReset, (), ["layer (HalfReset) leaves scale without initial values"]),
        (Constant, (False,), ["layer.scale is not part of the model's state"]),
        (
            lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)),
            (),
            ["layer (ParametrizedLinear) draws"],
        ),
    ],
)
def test_layers_that_cannot_follow_the_seed_are_refused(
    monkeypatch: pytest.MonkeyPatch, layer: type[nn.Module], arguments: tuple[object, ...], parts: list[str]
) -> None:
    model_with(monkeypatch, layer, *arguments)
    before = torch.get_rng_state()
    with pytest.raises(ModelLayerError) as failure:
        build_model("other", 1, 8, 3, generator())
    for part in parts:
        assert part in str(failure.value)
    assert torch.equal(torch.get_rng_state(), before)
