"""Initial values of every layer, from an explicit generator and nothing else.

Convolutions and linear layers are drawn by PyTorch's default formulas. Any other layer must bring a
``reset_parameters`` that draws nothing and fills all that the layer owns, as normalisations do.
"""

import math

import torch
from torch import Tensor, nn

from learning.errors import ModelLayerError

_DRAWN = (
    nn.Conv1d,
    nn.Conv2d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.Linear,
)


def initialise(model: nn.Module, generator: torch.Generator) -> None:
    """Fill every parameter and buffer of a model whose memory holds nothing yet.

    The global generators are left as they are.

    Raises
    ------
    ModelLayerError
        If a layer would draw from a global generator, or would leave something of its own without values.
    """
    for name, layer in model.named_modules():
        own = _own(layer)
        if isinstance(layer, _DRAWN) and {"weight"} <= own.keys() <= {"weight", "bias"}:
            _draw(layer, generator)
        elif own:
            _reset(layer, own, name)


def require_stated(model: nn.Module) -> None:
    """Raise ModelLayerError for a buffer that is no part of the model's state: no client would get it."""
    stated = model.state_dict()
    for name, _ in model.named_buffers():
        if name not in stated:
            raise ModelLayerError(
                f"the buffer {name} is not part of the model's state (persistent=False): a client would not "
                "get its values. Register it as persistent, or compute it where it is used"
            )


def _draw(layer: nn.Module, generator: torch.Generator) -> None:
    assert isinstance(layer.weight, Tensor)
    nn.init.kaiming_uniform_(layer.weight, a=math.sqrt(5), generator=generator)
    if isinstance(layer.bias, Tensor):
        bound = 1 / math.sqrt(layer.weight[0].numel())
        nn.init.uniform_(layer.bias, -bound, bound, generator=generator)


def _reset(layer: nn.Module, own: dict[str, Tensor], name: str) -> None:
    """Call the layer's own ``reset_parameters`` and see that it fills everything without a draw."""
    reset = getattr(layer, "reset_parameters", None)
    if reset is None:
        raise _error(name, layer, f"has no reset_parameters that would fill {', '.join(own)}")
    before = torch.get_rng_state()
    results = []
    for filled_with in (0, 1):  # what is the same after both did not come from the memory
        with torch.no_grad():
            for tensor in own.values():
                tensor.fill_(filled_with)
        reset()
        if not torch.equal(torch.get_rng_state(), before):
            torch.set_rng_state(before)
            raise _error(name, layer, "draws its initial values from the global generator")
        results.append({key: tensor.detach().clone() for key, tensor in own.items()})
    first, second = results
    if left := [key for key in own if not torch.equal(first[key], second[key])]:
        raise _error(name, layer, f"leaves {', '.join(left)} without initial values")


def _own(layer: nn.Module) -> dict[str, Tensor]:
    return {**dict(layer.named_parameters(recurse=False)), **dict(layer.named_buffers(recurse=False))}


def _error(name: str, layer: nn.Module, fault: str) -> ModelLayerError:
    drawn = ", ".join(kind.__name__ for kind in _DRAWN)
    return ModelLayerError(
        f"the layer {name or 'of the model itself'} ({type(layer).__name__}) {fault}. A model's initial "
        f"values come from the run's seed alone: {drawn} are drawn from it, any other layer must fill what "
        "it owns in reset_parameters, without a draw. Give it such a method, or give "
        "learning/initial_values.py its formula"
    )
