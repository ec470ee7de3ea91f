"""The idx files of the MNIST family, plain or gzip-compressed: big-endian 32-bit words, then bytes."""

import gzip
import math
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from datasets.errors import DatasetFormatError

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
