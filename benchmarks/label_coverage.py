"""How well updates alone tell which labels a client holds: ``python -m benchmarks.label_coverage``.

Each client of a preset trains one job from the same model, a fresh one and those of ``--model`` files (the
``final.pt`` of runs). The labels that FedRAW infers from the classifier's change are compared with its own.
"""

import argparse
import tomllib
from pathlib import Path

import numpy as np
import torch

from datasets.federated import federate
from datasets.randomness import torch_generator
from federation.client import data_spec, initial_model, train_settings
from federation.config.run_config import RunConfig, default_run_config, flatten, parse_run_config
from fedraw.label_coverage import coverage_from_update
from learning.arrays import load_arrays, to_arrays
from learning.device import pick_device
from learning.train import train_local
from learning.views import Normalisation


def inferred_and_held(
    config: RunConfig, start: dict[str, np.ndarray] | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the inferred and the true coverage of each client, (K, C) bool each."""
    data, device = federate(data_spec(config)), pick_device()
    inferred, held = [], []
    for client, pool in enumerate(data.pools):
        model = initial_model(config, data, label_round=0)
        if start is not None:
            load_arrays(model, start)
        before = {key: value.copy() for key, value in to_arrays(model).items()}
        train_local(
            model,
            data.train.images[torch.from_numpy(pool)],
            torch.from_numpy(data.train.labels[pool]),
            train_settings(config, config.train.lr, config.train.local_epochs),
            Normalisation(data.card.mean, data.card.std),
            torch_generator(config.seed, "benchmark", client),
            device,
        )
        after = to_arrays(model)
        change = {key: after[key] - before[key] for key in ("head.weight", "head.bias")}
        inferred.append(coverage_from_update(change["head.weight"], change["head.bias"]))
        held.append(data.class_counts(client) > 0)
    return np.array(inferred), np.array(held)


def main() -> None:
    """Print precision and recall over all labels, and over the rare ones."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("preset", type=Path, help="such as conf/fedraw-digits.toml")
    parser.add_argument("--seed", type=int, default=1, help="seed of the run (default: 1)")
    parser.add_argument("--model", type=Path, action="append", default=[], help="final.pt of a run")
    options = parser.parse_args()
    flat = default_run_config() | flatten(tomllib.loads(options.preset.read_text(encoding="utf-8")))
    config = parse_run_config(flat | {"seed": options.seed})
    rare = list(federate(data_spec(config)).rare_labels)
    for path in (None, *options.model):
        start = None
        if path is not None:
            start = {key: value.numpy() for key, value in torch.load(path, weights_only=True).items()}
        inferred, held = inferred_and_held(config, start)
        for name, labels in (("all labels", slice(None)), ("rare labels", rare)):
            found, true = inferred[:, labels], held[:, labels]
            right = (found & true).sum()
            print(
                f"{path or 'fresh model'}, {name}: precision {right / max(found.sum(), 1):.3f}, "
                f"recall {right / max(true.sum(), 1):.3f} ({true.sum()} of {true.size} held)"
            )


if __name__ == "__main__":
    main()
