import warnings

import numpy as np
import pytest
import torch

from learning.arrays import load_arrays, to_arrays
from learning.errors import ArrayMismatchError, LearningError
from learning.train import train_local

COUNTER = "blocks.0.norm.num_batches_tracked"


def test_round_trip_of_a_trained_model(make_model, make_images, make_settings, grey, cpu):
    model, (images, labels) = make_model(), make_images(9)
    draws = torch.Generator().manual_seed(1)
    train_local(model, images, labels, make_settings(), grey, draws, cpu)
    arrays = to_arrays(model)
    assert arrays[COUNTER].shape == ()
    assert arrays[COUNTER].dtype == np.int64
    assert arrays[COUNTER] == 4
    assert all(array.flags.c_contiguous for array in arrays.values())
    other = make_model(seed=3)
    load_arrays(other, arrays)
    for name, value in other.state_dict().items():
        assert value.dtype == model.state_dict()[name].dtype
        assert torch.equal(value, model.state_dict()[name])
    assert list(to_arrays(other)) == list(arrays)


def test_arrays_are_copies(make_model):
    model = make_model()
    arrays = to_arrays(model)
    before = {name: array.copy() for name, array in arrays.items()}
    with torch.no_grad():
        for value in model.state_dict().values():
            value.add_(1)
    assert all(np.array_equal(arrays[name], before[name]) for name in arrays)
    load_arrays(model, arrays)
    for array in arrays.values():
        array += 1
    assert all(np.array_equal(array, before[name]) for name, array in to_arrays(model).items())


def test_floats_for_a_counter_are_rounded(make_model):
    model = make_model()
    arrays = to_arrays(model) | {COUNTER: np.array(41.6)}
    load_arrays(model, arrays)
    value = model.blocks[0].norm.num_batches_tracked
    assert value.dtype == torch.int64
    assert value == 42


def test_read_only_float64_and_foreign_byte_order_are_taken(make_model):
    model = make_model()
    arrays = {name: array.astype(array.dtype.newbyteorder(">")) for name, array in to_arrays(model).items()}
    arrays["head.bias"] = np.array([0.5, 0.25, -1.0])
    for array in arrays.values():
        array.setflags(write=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_arrays(model, arrays)
    assert model.head.bias.dtype == torch.float32
    assert model.head.bias.tolist() == [0.5, 0.25, -1.0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"head.bias": None}, "'head.bias' is missing .1 missing, 0 unknown, 30 expected"),
        ({"head.extra": np.zeros(2)}, "'head.extra' is not an entry"),
        ({"head.bias": np.zeros(4)}, r"'head.bias' has shape \(4,\), the model's entry \(3,\)"),
        ({COUNTER: np.zeros(1)}, r"shape \(1,\), the model's entry \(\)"),
        ({COUNTER: np.array(np.nan)}, "must be finite"),
        ({"head.bias": np.array(["a", "b", "c"])}, "'head.bias' has type <U1"),
    ],
)
def test_arrays_that_do_not_fit_are_named_and_change_nothing(make_model, change, message):
    model = make_model()
    before = to_arrays(model)
    arrays = {name: array + 1 for name, array in before.items()} | change
    arrays = {name: array for name, array in arrays.items() if array is not None}
    with pytest.raises(ArrayMismatchError, match=message) as caught:
        load_arrays(model, arrays)
    assert isinstance(caught.value, LearningError)
    assert all(np.array_equal(array, before[name]) for name, array in to_arrays(model).items())
