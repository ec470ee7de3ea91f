"""stub until merged"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from learning.measure import measure


def measure_row(
    probabilities: np.ndarray, labels: np.ndarray, rare_labels: Collection[int]
) -> dict[str, float]:
    m = measure(probabilities, labels, rare_labels)
    row = {
        k: getattr(m, k)
        for k in ("accuracy", "balanced_accuracy", "rare_accuracy", "common_accuracy", "macro_f1", "loss")
    }
    return row | {f"accuracy_class_{i}": v for i, v in enumerate(m.per_class)}


def headline(row: Mapping[str, float]) -> dict[str, float]:
    told = {"accuracy": row["accuracy"], "rare": row["rare_accuracy"]}
    return {n: v for n, v in told.items() if not math.isnan(v)}


def last_means(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    return {
        f"{c}_last5": float(np.mean([r[c] for r in rows[-5:]]))
        for c in ("accuracy", "rare_accuracy", "common_accuracy")
    }
