import numpy as np
import pytest
import torch

from learning.predict import predict


def test_probabilities_by_hand(pixel_classifier, grey, cpu):
    images = torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1)
    result = predict(pixel_classifier, images, grey, cpu)
    # Pixels -0.5 and 1.5; logits (0.5 x + 0.1, -0.25 x).
    first = 1 / (1 + np.exp(0.125 - (-0.15)))
    second = 1 / (1 + np.exp(-0.375 - 0.85))
    assert result.probabilities[:, 0] == pytest.approx([first, second], abs=1e-6)
    assert result.features[:, 0] == pytest.approx([-0.5, 1.5], abs=1e-6)


def test_types_shapes_and_sums(make_model, make_images, grey, cpu):
    images, _ = make_images(20, size=28)
    model = make_model(size=28)
    result = predict(model, images, grey, cpu)
    assert result.probabilities.dtype == np.float64
    assert result.features.dtype == np.float32
    assert result.probabilities.shape == (20, 3)
    assert result.features.shape == (20, 64)
    assert result.probabilities.sum(axis=1) == pytest.approx(np.ones(20), abs=1e-12)


@pytest.mark.parametrize("batch_size", [1, 3, 20, 21])
def test_batch_size_does_not_matter(make_model, make_images, grey, cpu, batch_size):
    images, _ = make_images(20, size=14)
    model = make_model(size=14)
    whole = predict(model, images, grey, cpu)
    parts = predict(model, images, grey, cpu, batch_size=batch_size)
    assert parts.probabilities == pytest.approx(whole.probabilities, abs=1e-6)
    assert parts.features == pytest.approx(whole.features, abs=1e-5)


def test_number_of_threads_does_not_matter(make_model, make_images, grey, cpu):
    images, _ = make_images(20, size=28)
    model = make_model(size=28)
    alone = predict(model, images, grey, cpu, batch_size=3)
    torch.set_num_threads(3)  # each test starts with one
    together = predict(model, images, grey, cpu, batch_size=3)
    assert torch.get_num_threads() == 3
    assert np.array_equal(together.probabilities, alone.probabilities)
    assert np.array_equal(together.features, alone.features)


def test_no_images_give_empty_arrays(make_model, grey, cpu):
    result = predict(make_model(size=28), torch.empty(0, 1, 28, 28, dtype=torch.uint8), grey, cpu)
    assert result.probabilities.shape == (0, 3)
    assert result.features.shape == (0, 64)
    assert result.probabilities.dtype == np.float64


def test_training_flags_and_state_stay_as_they_are(make_model, make_images, grey, cpu):
    model = make_model().train()
    model.blocks[1].eval()
    flags = [module.training for module in model.modules()]
    state = {name: value.clone() for name, value in model.state_dict().items()}
    predict(model, make_images(4)[0], grey, cpu)
    assert [module.training for module in model.modules()] == flags
    with pytest.raises(ValueError, match="uint8"):
        predict(model, torch.zeros(2, 1, 8, 8), grey, cpu)
    assert [module.training for module in model.modules()] == flags
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


def test_model_can_train_afterwards(make_model, make_images, grey, cpu):
    model = make_model()
    predict(model, make_images(4)[0], grey, cpu)
    model(torch.rand(2, 1, 8, 8)).sum().backward()
    assert not any(parameter.is_inference() for parameter in model.parameters())


def test_bfloat16_is_near_float32(make_model, make_images, grey, cpu):
    images, _ = make_images(10, size=28)
    model = make_model(size=28)
    exact = predict(model, images, grey, cpu)
    rounded = predict(model, images, grey, cpu, precision="bf16")
    assert rounded.probabilities.dtype == np.float64
    assert rounded.features.dtype == np.float32
    assert rounded.probabilities == pytest.approx(exact.probabilities, abs=0.02)
