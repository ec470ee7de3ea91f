"""Image files become what they show, or a reason."""

import os
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from datasets.images.decoding import UnreadableImageError, decode
from tests.datasets.written_images import damaged_files, save


def colour(pixels: np.ndarray) -> list[int]:
    """Return the one colour of an image."""
    assert (pixels == pixels[:, :1, :1]).all()
    return pixels[:, 0, 0].tolist()


@pytest.mark.parametrize("suffix", ["png", "ppm", "bmp", "tif", "tiff"])
def test_lossless_formats(tmp_path: Path, suffix: str) -> None:
    pixels = decode(save(tmp_path / f"a.{suffix}"), 8)
    assert pixels.shape == (3, 8, 8)
    assert pixels.dtype == np.uint8
    assert colour(pixels) == [200, 100, 50]


@pytest.mark.parametrize("suffix", ["jpg", "jpeg", "webp"])
def test_lossy_formats(tmp_path: Path, suffix: str) -> None:
    pixels = decode(save(tmp_path / f"a.{suffix}"), 8)
    assert np.abs(pixels[:, 4, 4].astype(int) - [200, 100, 50]).max() <= 3


@pytest.mark.parametrize(
    ("mode", "value", "shown"),
    [
        ("L", 77, [77]),
        ("1", 1, [255]),
        ("LA", (77, 255), [77]),
        ("RGBA", (10, 20, 30, 255), [10, 20, 30]),
        ("RGBA", (10, 20, 30, 0), [255]),
        ("RGBA", (0, 100, 200, 102), [153, 193, 233]),  # 0.4 of the colour on 0.6 of white
        ("I;16", 257 * 40, [40]),
        ("I;16", 65535, [255]),
        ("I;16", 128, [0]),
        ("I;16", 129, [1]),
    ],
)
def test_modes(tmp_path: Path, mode: str, value: object, shown: list[int]) -> None:
    assert colour(decode(save(tmp_path / "a.png", value, mode=mode), 8)) == shown


def test_cmyk(tmp_path: Path) -> None:
    pixels = decode(save(tmp_path / "a.tif", (0, 255, 255, 0), mode="CMYK"), 8)
    assert colour(pixels) == [255, 0, 0]
    pixels = decode(save(tmp_path / "a.jpg", (0, 255, 255, 0), mode="CMYK"), 8)
    assert np.abs(pixels[:, 4, 4].astype(int) - [255, 0, 0]).max() <= 3


def test_palette(tmp_path: Path) -> None:
    image = Image.new("P", (8, 8), 1)
    image.putpalette([0, 0, 0, 10, 20, 30])
    image.save(tmp_path / "opaque.png")
    assert colour(decode(tmp_path / "opaque.png", 8)) == [10, 20, 30]
    image.save(tmp_path / "transparent.png", transparency=1)
    assert colour(decode(tmp_path / "transparent.png", 8)) == [255]


def test_transparent_colour_of_an_image_without_alpha(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8), (10, 20, 30)).save(tmp_path / "a.png", transparency=(10, 20, 30))
    assert colour(decode(tmp_path / "a.png", 8)) == [255]


def test_sixteen_bit_pgm_and_32_bit_integers(tmp_path: Path) -> None:
    (tmp_path / "a.pgm").write_bytes(b"P5 2 2 65535\n" + (257 * 40).to_bytes(2, "big") * 4)
    assert colour(decode(tmp_path / "a.pgm", 4)) == [40]
    assert colour(decode(save(tmp_path / "a.tif", 257 * 40, mode="I"), 4)) == [40]
    with pytest.raises(UnreadableImageError, match=r"from 70000 to 70000; .*0 to 65535"):
        decode(save(tmp_path / "b.tif", 70_000, mode="I"), 4)
    with pytest.raises(UnreadableImageError, match="floating-point"):
        decode(save(tmp_path / "c.tif", 0.5, mode="F"), 4)


def test_equal_channels_are_one(tmp_path: Path) -> None:
    assert decode(save(tmp_path / "a.png", (9, 9, 9)), 8).shape == (1, 8, 8)


def test_exif_orientation(tmp_path: Path) -> None:
    image = Image.new("RGB", (8, 8), "black")
    image.paste("white", (0, 0, 8, 4))  # white above, black below
    exif = Image.Exif()
    exif[0x0112] = 6  # shown after a quarter turn to the right: white on the right
    image.save(tmp_path / "a.png", exif=exif)
    assert decode(tmp_path / "a.png", 8).tolist() == [[[0] * 4 + [255] * 4] * 8]


def test_damaged_metadata_do_not_hide_the_image(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8), (9, 9, 9)).save(tmp_path / "a.jpg", exif=b"Exif\0\0II*\0\x08\0\0\0\xff\xff")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert colour(decode(tmp_path / "a.jpg", 8)) == [9]


def test_shorter_side_is_resized_and_the_centre_cut_out(tmp_path: Path) -> None:
    pixels = np.zeros((4, 8), dtype=np.uint8)
    pixels[:, 2:4], pixels[:, 4:6] = 100, 200
    pixels[:, 6:] = 255
    Image.fromarray(pixels).save(tmp_path / "a.png")
    assert decode(tmp_path / "a.png", 4).tolist() == [[[100, 100, 200, 200]] * 4]


def test_resizing_is_antialiased(tmp_path: Path) -> None:
    chessboard = (np.indices((64, 64)).sum(axis=0) % 2 * 255).astype(np.uint8)
    Image.fromarray(chessboard).save(tmp_path / "a.png")
    assert np.abs(decode(tmp_path / "a.png", 8).astype(int) - 127).max() <= 1


def test_large_jpeg_is_decoded_as_exactly_as_it_needs(tmp_path: Path) -> None:
    ramp = np.broadcast_to(np.linspace(0, 255, 640).astype(np.uint8), (480, 640))
    Image.fromarray(ramp).save(tmp_path / "a.jpg", quality=95)
    Image.fromarray(ramp).save(tmp_path / "a.png")
    quick, exact = decode(tmp_path / "a.jpg", 16).astype(int), decode(tmp_path / "a.png", 16).astype(int)
    assert np.abs(quick - exact).max() <= 2


def test_smaller_images_are_enlarged(tmp_path: Path) -> None:
    assert colour(decode(save(tmp_path / "a.png", size=(1, 5)), 16)) == [200, 100, 50]


def test_damage_has_a_reason(tmp_path: Path) -> None:
    for reason, path in damaged_files(tmp_path).items():
        with pytest.raises(UnreadableImageError) as failure:
            decode(path, 8)
        assert reason in str(failure.value)


def test_folder_pipe_and_lack_of_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder.jpg").mkdir()
    os.mkfifo(tmp_path / "pipe.jpg")
    for name in ("folder.jpg", "pipe.jpg"):
        with pytest.raises(UnreadableImageError, match="no regular file"):
            decode(tmp_path / name, 8)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Image, "open", refuse)
    with pytest.raises(UnreadableImageError, match=r"^Permission denied$"):
        decode(save(tmp_path / "a.png"), 8)


@pytest.mark.parametrize("times", [1.5, 3])
def test_image_bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: float) -> None:
    path = save(tmp_path / "a.png", size=(100, 100))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", int(10_000 / times))
    with pytest.raises(UnreadableImageError, match=r"it is too large: .*10000 pixels"):
        decode(path, 8)


def test_suffix_need_not_tell_the_format(tmp_path: Path) -> None:
    save(tmp_path / "a.png").rename(tmp_path / "a.jpg")
    assert colour(decode(tmp_path / "a.jpg", 8)) == [200, 100, 50]


def test_formats_that_run_other_programs_are_refused(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png", "EPS")
    with pytest.raises(UnreadableImageError, match="it holds none of"):
        decode(tmp_path / "a.png", 8)
