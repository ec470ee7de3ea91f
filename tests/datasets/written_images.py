"""Small image files and what is wrong with some of them."""

import io
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image


def save(
    path: Path, colour: object = (200, 100, 50), size: tuple[int, int] = (40, 30), mode: str = "RGB"
) -> Path:
    """Write an image of one colour, in the format of the suffix; folders are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(path)  # type: ignore[arg-type]
    return path


def save_noise(path: Path, seed: int, size: tuple[int, int] = (40, 30)) -> Path:
    """Write an image that no other seed gives."""
    rng = np.random.default_rng(seed)
    return save_pixels(path, rng.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8))


def save_pixels(path: Path, pixels: npt.NDArray[np.uint8]) -> Path:
    """Write an image of these pixels, (H, W) or (H, W, 3); folders are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path


def damaged_files(folder: Path) -> dict[str, Path]:
    """Write one file of each kind of damage; the keys are parts of the reasons."""
    whole = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(whole, "JPEG")
    contents = {
        "it is empty (0 bytes)": b"",
        "truncated": whole.getvalue()[: len(whole.getvalue()) // 2],
        "it holds none of JPEG, PNG": b"<html>404 Not Found</html>",
    }
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for number, (reason, content) in enumerate(contents.items()):
        files[reason] = folder / f"damaged{number}.jpg"
        files[reason].write_bytes(content)
    files["No such file"] = folder / "dangling.jpg"
    files["No such file"].symlink_to(folder / "nowhere.jpg")
    return files
