"""Pictures of trainings: accuracy over time, who took part and who counted, how stale updates were."""

import numpy as np
import pandas as pd

from federation.runs.run_folder import ROUNDS
from rarefl.report.drawing import Picture, band, legend_below, looks, panels
from rarefl.report.influence_pictures import influence_pictures
from rarefl.report.label_pictures import confusion_picture
from rarefl.report.runs import Findings
from rarefl.report.sections import Section, gather

_POINTS = 200


def training_pictures(section: Section, findings: Findings) -> list[Picture]:
    """Return the pictures of a section of trainings; those whose tables no run has are left out."""
    columns = ["time", "rare_accuracy", "common_accuracy"]
    rounds = gather(section, lambda run: findings.table(run, ROUNDS, columns))
    pictures = [
        None if rounds is None else _accuracy(section, rounds),
        *influence_pictures(section, findings),
        confusion_picture(section, findings),
    ]
    return [picture for picture in pictures if picture is not None]


def _accuracy(section: Section, rounds: pd.DataFrame) -> Picture:
    kinds = {"rare_accuracy": "rare labels", "common_accuracy": "common labels"}
    figure, grid = panels(list(kinds.values()), width=4.0, height=3.4)
    styles = looks(section.methods)
    time = "virtual time in s" if section.protocol.get("clock.name") == "virtual" else "time in s"
    for axes, column in zip(grid, kinds, strict=True):
        for method in section.methods:
            runs = [run for _, run in rounds[rounds["method"] == method].groupby("seed")]
            if runs:
                moments = np.linspace(0.0, min(run["time"].max() for run in runs), _POINTS)
                values = 100 * np.stack([_held(run, column, moments) for run in runs])
                sd = values.std(axis=0, ddof=1) if len(runs) > 1 else np.full(_POINTS, np.nan)
                band(axes, moments, values.mean(axis=0), sd, method, styles[method])
        axes.set_xlabel(time)
        axes.set_ylabel("accuracy in %")
        axes.set_ylim(0, 100)
    legend_below(figure, grid[0])
    caption = (
        "Accuracy on rare and on common labels over the run's time, each value held until the next "
        "evaluation: mean over seeds and one standard deviation, until the first of the seeds ends."
    )
    return Picture(f"{section.slug}-accuracy", caption, figure)


def _held(run: pd.DataFrame, column: str, moments: np.ndarray) -> np.ndarray:
    """Return the value that was measured last at each moment; the times of a run begin at 0."""
    run = run.sort_values("time", kind="stable")
    places = np.searchsorted(run["time"].to_numpy(), moments, side="right") - 1
    return run[column].to_numpy(dtype=np.float64)[places.clip(min=0)]
