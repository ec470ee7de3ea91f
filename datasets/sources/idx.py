"""The idx files of the MNIST family, plain or gzip-compressed: big-endian 32-bit words, then bytes."""

import gzip
import math
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from datasets.base import ImageSplit
from datasets.errors import DatasetFormatError
from datasets.sources.labels import unify_labels

IMAGE_SIZE = 28

_UNSIGNED_BYTE = 0x08  # the idx code of the element type; the low byte of the magic number counts the axes


def read_idx(path: Path, axes: int, way_out: str) -> npt.NDArray[np.uint8]:
    """Return the unsigned bytes of an idx file as a writable array with ``axes`` axes.

    Raises
    ------
    DatasetFormatError
        If the file cannot be read, is no idx file of bytes with that many axes, or has another length than
        its header says. The message ends with ``way_out``.
    """

    def refuse(found: str, expected: str) -> DatasetFormatError:
        return DatasetFormatError(f"{path}: found {found}, expected {expected}. {way_out}")

    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise refuse(f"unreadable data ({error})", "a whole idx file") from error
    header_size = 4 * (1 + axes)
    if len(content) < header_size:
        raise refuse(f"{len(content)} bytes", f"a header of {header_size} bytes and data")
    magic, *shape = (int(word) for word in np.frombuffer(content, dtype=">u4", count=1 + axes))
    expected_magic = _UNSIGNED_BYTE << 8 | axes
    if magic != expected_magic:
        raise refuse(f"magic number 0x{magic:08x}", f"0x{expected_magic:08x} (bytes with {axes} axes)")
    size = math.prod(shape)
    if len(content) - header_size != size:
        sizes = " x ".join(map(str, shape))
        raise refuse(f"{len(content) - header_size} bytes of data", f"{size} ({sizes}, as its header says)")
    return np.frombuffer(content, dtype=np.uint8, offset=header_size).reshape(shape).copy()


def read_split(
    images_path: Path,
    labels_path: Path,
    class_names: Sequence[str],
    way_out: str,
    codes: Sequence[int] | None = None,
    transposed: bool = False,
) -> ImageSplit:
    """Return the split that a file of 28x28 images and a file of labels make up.

    Parameters
    ----------
    class_names, codes
        Names of the classes, and their numbers in the file, 0..C-1 unless given.
    transposed
        Whether the file holds rows and columns of each image exchanged.

    Raises
    ------
    DatasetFormatError
        If a file is damaged or does not fit the other. The message ends with ``way_out``.
    """
    images = read_idx(images_path, axes=3, way_out=way_out)
    labels = read_idx(labels_path, axes=1, way_out=way_out)
    if images.shape[1:] != (IMAGE_SIZE, IMAGE_SIZE):
        raise DatasetFormatError(
            f"{images_path}: found images of {images.shape[1]}x{images.shape[2]} pixels, "
            f"expected {IMAGE_SIZE}x{IMAGE_SIZE}. {way_out}"
        )
    if len(images) != len(labels) or len(labels) == 0:
        raise DatasetFormatError(
            f"{labels_path}: found {len(labels)} labels, expected one for each of the {len(images)} images "
            f"in {images_path.name}, and at least one. {way_out}"
        )
    values = unify_labels(labels, str(labels_path), class_names, codes, way_out).values
    if transposed:
        images = np.ascontiguousarray(images.transpose(0, 2, 1))
    return ImageSplit(torch.from_numpy(images).unsqueeze(1), values)
