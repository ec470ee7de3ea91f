"""What checkpoints cost: ``python -m benchmarks.checkpoint conf/fedraw-digits.toml --versions 60``.

Prints the seconds of a checkpoint of ``cnn4`` and of ResNet-18 against a plain ``torch.save`` of the same
tensors, which neither waits for the disk nor knows what it wrote, and the share of the wall time of a whole
run, in this process, that went into checkpoints.
"""

import argparse
import json
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torchvision.models import resnet18

from benchmarks.asynchronous import Threads, median_seconds
from datasets.randomness import torch_generator
from fairfal_app.config import FairFALConfig
from federation.config.run_config import default_run_config, flatten, parse_run_config
from federation.runs.checkpoints import Checkpoints
from learning.arrays import to_arrays
from learning.models import build_model
from rarefl.client_app import app as client_app
from rarefl.server_app import SERVER_RUNS


def one_checkpoint(name: str, arrays: Mapping[str, np.ndarray], turns: int) -> None:
    """Print the seconds of a checkpoint and of ``torch.save``."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = Checkpoints(Path(folder) / "checkpoint")
        tensors = {key: torch.from_numpy(array) for key, array in arrays.items()}
        ours = median_seconds(lambda: checkpoints.save(arrays, {"version": 1}), turns)
        plain = median_seconds(lambda: torch.save(tensors, Path(folder) / "plain.pt"), turns)
    size = sum(array.nbytes for array in arrays.values())
    print(f"{name}, {size / 1e6:.1f} MB: {ours:.3f} s; torch.save {plain:.3f} s, ratio {ours / plain:.1f}")


def share_of_a_run(preset: Path, workers: int, rounds: int, versions: int) -> None:
    """Print the share of a run's wall time that went into checkpoints."""
    flat = default_run_config() | flatten(tomllib.loads(preset.read_text(encoding="utf-8")))
    flat |= {key: value for key, value in (("train.rounds", rounds), ("train.versions", versions)) if value}
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        config = parse_run_config(flat | {"output.dir": folder}, FairFALConfig)
        grid = Threads(config.data.clients, config.flat(), workers)
        grid.app = client_app
        for context in grid.contexts.values():
            context.node_config["state-dir"] = str(Path(folder) / "clients")
        SERVER_RUNS[config.app](grid, config)
        (session,) = json.loads((Path(folder) / "summary.json").read_text())["provenance"]["sessions"]
        seconds, saving = session["seconds"], session["checkpoint_seconds"]
    print(f"{preset.name}: {saving:.2f} of {seconds:.1f} s went into checkpoints, {saving / seconds:.2%}")


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("presets", type=Path, nargs="*", help="run these presets, such as conf/NAME.toml")
    parser.add_argument("--turns", type=int, default=9, help="timed checkpoints (default: 9)")
    parser.add_argument("--workers", type=int, default=2, help="workers of a run (default: 2)")
    parser.add_argument("--rounds", type=int, default=0, help="rounds of a run (default: the preset's)")
    parser.add_argument("--versions", type=int, default=0, help="its versions (default: the preset's)")
    options = parser.parse_args()
    cnn4 = build_model("cnn4", 1, 28, 10, torch_generator(1, "initial weights"))
    one_checkpoint("cnn4", to_arrays(cnn4), options.turns)
    one_checkpoint(
        "ResNet-18", {key: value.numpy() for key, value in resnet18().state_dict().items()}, options.turns
    )
    for preset in options.presets:
        share_of_a_run(preset, options.workers, options.rounds, options.versions)


if __name__ == "__main__":
    main()
