"""How quickly images are there, against the plain way: ``python -m benchmarks.loading``.

Three questions, each answered by fresh processes:

* Fashion-MNIST: how long a worker process waits for its images, beside importing PyTorch;
* a folder of as many JPEG files of 600 x 450 pixels as HAM10000 has: decoding on two cores against one, and
  reading the decoded images again against decoding them;
* the memory that the reading process has resident, over that of the decoded originals.

The files and the cache lie in a temporary folder. Times on one and on two cores are taken in turns, so
that other load on the machine meets both.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from datasets.randomness import generator

WIDTH, HEIGHT = 600, 450
CLASSES = 7

LOAD = """
import json, os, sys, time
from pathlib import Path
name, root, cores = sys.argv[1:]
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(cores)])
import psutil, torch
from datasets.base import LoadOptions
from datasets.registry import load_dataset
resident = psutil.Process().memory_info().rss
begin = time.perf_counter()
dataset = load_dataset(name, LoadOptions(Path(root) if root else None))
ready = time.perf_counter() - begin
total = sum(int(split.images.sum(dtype=torch.int64)) for split in (dataset.train, dataset.test))
resident = psutil.Process().memory_info().rss - resident
print(json.dumps({"seconds": ready, "resident": resident, "total": total}))
"""


def load(name: str, root: str, cores: int, cache: Path) -> dict[str, float]:
    """Load a data set in a fresh process; return its seconds and the bytes that it has resident more."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", LOAD, name, root, str(cores)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def write_images(folder: Path, count: int) -> None:
    """Write JPEG files that look as smooth as photographs, in a folder for each class."""
    draws = generator(0, "benchmark images")
    for label in range(CLASSES):
        (folder / f"class{label}").mkdir(parents=True)
    for number in range(count):
        coarse = Image.fromarray(draws.integers(0, 256, (HEIGHT // 10, WIDTH // 10, 3), dtype=np.uint8))
        image = coarse.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)
        image.save(folder / f"class{number % CLASSES}" / f"{number}.jpg", quality=90)


def main() -> None:
    """Run the comparison and print its tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=10_000, help="JPEG files (default: 10000)")
    parser.add_argument(
        "--turns", type=int, default=3, help="timed turns, of which medians are told (default: 3)"
    )
    options = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="rarefl-loading-") as temporary:
        place = Path(temporary)
        fashion = [load("fashion-mnist", "", 1, place)["seconds"] for _ in range(options.turns)]
        print(f"Fashion-MNIST ready in a fresh process: {statistics.median(fashion):.2f} s\n")

        write_images(place / "images", options.images)
        plain, parallel, again = [], [], []
        for turn in range(options.turns):
            cache = place / f"cache{turn}"
            plain.append(load("image-folder", str(place / "images"), 1, place / f"plain{turn}"))
            parallel.append(load("image-folder", str(place / "images"), 2, cache))
            again.append(load("image-folder", str(place / "images"), 1, cache))
    assert len({each["total"] for each in (*plain, *parallel, *again)}) == 1

    print(
        f"{options.images} JPEG files of {WIDTH} x {HEIGHT}; medians of {options.turns} turns\n\n"
        f"{'way':<24}{'seconds':>9}{'x one core':>12}"
    )
    for name, times in (
        ("decode on one core", plain),
        ("decode on two cores", parallel),
        ("read again", again),
    ):
        ratio = statistics.median(
            one["seconds"] / own["seconds"] for one, own in zip(plain, times, strict=True)
        )
        print(f"{name:<24}{statistics.median(each['seconds'] for each in times):>9.2f}{ratio:>12.1f}")
    originals = options.images * WIDTH * HEIGHT * 3
    resident = statistics.median(each["resident"] for each in again)
    print(
        f"\nAfter use of every image: {resident / 1e6:.0f} MB resident, {originals / 1e6:.0f} MB of decoded "
        f"originals: {originals / resident:.0f} times less"
    )


if __name__ == "__main__":
    main()
