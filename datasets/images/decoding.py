"""Image files become small squares of bytes: what a file shows, or what is wrong with it.

Nothing here needs torch: the processes that decode start quickly and stay small.
"""

import stat
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

Pixels = npt.NDArray[np.uint8]

FORMATS = ("JPEG", "PNG", "PPM", "BMP", "TIFF", "WEBP")
"""What a file may hold, whatever its suffix says."""

SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
"""Which files are taken for images, in either letter case."""

_REDUCING_GAP = 2.0  # a JPEG is decoded at no less than this many times the size it is then resized to


class UnreadableImageError(Exception):
    """An image file cannot be decoded; the text is the reason, without the file."""


def decode_files(paths: Sequence[Path], size: int) -> list[Pixels | str]:
    """Return for each file its pixels as of :func:`decode`, or the reason why it has none."""
    results: list[Pixels | str] = []
    for path in paths:
        try:
            results.append(decode(path, size))
        except UnreadableImageError as error:
            results.append(str(error))
    return results


def decode(path: Path, size: int) -> Pixels:
    """Return what an image file shows as uint8 (C, size, size): 3 channels, or 1 where they are all equal.

    The shorter side is resized to ``size`` with antialiasing and the centre cut out: no shape is distorted,
    and lesions and cells lie in the middle. The image is turned as its EXIF tag says; transparent pixels
    stand on white; of several frames or pages the first counts; 16-bit values are divided by 257.

    Raises
    ------
    UnreadableImageError
        If the file is damaged, or no image, or has more pixels than Pillow allows.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableImageError("it is no regular file")
        if status.st_size == 0:
            raise UnreadableImageError("it is empty (0 bytes)")
        with warnings.catch_warnings():
            # Pillow warns of doubtful metadata, which do not touch the pixels.
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path, formats=FORMATS) as image:
                return _square(image, size)
    except UnreadableImageError:
        raise
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise UnreadableImageError(f"it is too large: {error}") from None
    except Image.UnidentifiedImageError:
        raise UnreadableImageError(f"it holds none of {', '.join(FORMATS)}") from None
    # On damaged files, Pillow's readers raise nearly every built-in exception.
    except Exception as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__
        raise UnreadableImageError(reason) from None


def _square(image: Image.Image, size: int) -> Pixels:
    least = round(_REDUCING_GAP * size)
    image.draft(None, (least, least))
    shown = _eight_bits(ImageOps.exif_transpose(image))
    fitted = np.asarray(ImageOps.fit(shown, (size, size), Image.Resampling.BILINEAR))
    if fitted.ndim == 2:
        return fitted[None]
    pixels = np.ascontiguousarray(fitted.transpose(2, 0, 1))
    return pixels[:1] if (pixels == pixels[0]).all() else pixels


def _eight_bits(image: Image.Image) -> Image.Image:
    """Return the image in mode L or RGB."""
    if image.mode in ("L", "RGB") and "transparency" not in image.info:
        return image
    if image.mode == "I" or image.mode.startswith("I;16"):
        values = np.asarray(image).astype(np.int64)
        if values.min() < 0 or values.max() >= 2**16:
            raise UnreadableImageError(
                f"its pixels go from {values.min()} to {values.max()}; grayscale is read up to 16 bits, "
                "0 to 65535"
            )
        return Image.fromarray((values / 257).round().astype(np.uint8))
    if image.mode == "F":
        raise UnreadableImageError("its pixels are floating-point numbers, of which no range is known")
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")
    return image.convert("L" if image.mode == "1" else "RGB")
