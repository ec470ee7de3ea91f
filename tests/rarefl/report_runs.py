"""Small run folders with given numbers."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tomli_w

from fairfal_app.config import FairFALConfig
from federation.config.run_config import default_run_config, parse_run_config


def write_run(folder: Path, summary: dict[str, Any], **overrides: Any) -> Path:
    """Write config and summary of a run; ``data__alpha=1.0`` sets ``data.alpha``."""
    folder.mkdir(parents=True)
    given = {key.replace("__", ".").replace("_", "-"): value for key, value in overrides.items()}
    config = parse_run_config(default_run_config() | given, FairFALConfig)
    (folder / "config.toml").write_text(tomli_w.dumps(config.resolved()))
    head = {"app": config.app, "status": "finished", "reason": "", "seconds": 10.0}
    (folder / "summary.json").write_text(json.dumps(head | summary))
    return folder


def label_rounds(
    folder: Path,
    name: str,
    seed: int,
    accuracies: Sequence[float],
    influence: dict[str, Any] | None = None,
    participation: dict[str, Any] | None = None,
    **overrides: Any,
) -> Path:
    """Write a run of label rounds; the rare-label accuracy is half of the others."""
    rounds = [
        {
            "label_round": place,
            "label_ratio": place / 10,
            "labelled": 100 * place,
            "accuracy": accuracy,
            "balanced_accuracy": accuracy,
            "rare_accuracy": accuracy / 2,
            "macro_f1": accuracy,
            "rare_label_share": 0.05,
            **(influence or {}),
        }
        for place, accuracy in enumerate(accuracies, start=1)
    ]
    summary: dict[str, Any] = {
        "label_rounds": rounds,
        "class_names": ["cat & dog", "<b>$x$"],
        "train_class_counts": [30, 10],
    }
    if participation is not None:
        summary["participation"] = participation
    return write_run(folder, summary, query__name=name, seed=seed, **overrides)


def training(
    folder: Path, name: str, seed: int, accuracy: float, reached: dict[str, float | None], **overrides: Any
) -> Path:
    """Write an asynchronous training."""
    result = {"version": 30, "time": 50.0, "replaced_per_flush": 0.5, "rare_accuracy_last5": accuracy / 2}
    result |= {"accuracy_last5": accuracy, "common_accuracy_last5": accuracy}
    result |= {"rare_share_of_updates": 0.08, "rare_share_of_weight": 0.2}
    summary = {"result": result, "time_to_accuracy": reached, "class_names": ["a", "b"]}
    return write_run(folder, summary, app="fedraw", strategy__name=name, seed=seed, **overrides)
