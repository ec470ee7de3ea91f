import pytest
import torch

from learning.views import Normalisation, flip, normalise


def test_normalise_by_hand():
    images = torch.tensor([0, 51, 255], dtype=torch.uint8).view(1, 3, 1, 1)
    result = normalise(images, Normalisation((0.5, 0.2, 0.0), (0.5, 0.1, 2.0)))
    assert result.dtype == torch.float32
    assert result.flatten().tolist() == pytest.approx([-1.0, 0.0, 0.5], abs=1e-6)


def test_normalise_leaves_the_images_alone_and_is_channels_last():
    images = torch.randint(0, 256, (2, 3, 4, 4), dtype=torch.uint8)
    before = images.clone()
    result = normalise(images, Normalisation((0.5,) * 3, (0.5,) * 3))
    assert torch.equal(images, before)
    assert result.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    "images", [torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.zeros(2, 1, 4, 4), torch.zeros(4, 4).byte()]
)
def test_normalise_refuses_other_channels_types_and_shapes(images):
    with pytest.raises(ValueError, match=r"\(N, 1, H, W\), got torch\."):
        normalise(images, Normalisation((0.5,), (0.5,)))


def test_flip_mirrors_the_chosen_images_left_to_right():
    images = torch.arange(8).view(2, 1, 2, 2)
    result = flip(images, torch.tensor([False, True]))
    assert result[0, 0].tolist() == [[0, 1], [2, 3]]
    assert result[1, 0].tolist() == [[5, 4], [7, 6]]
