"""Pictures of trainings: accuracy over time, who took part and who counted, how stale updates were."""

import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator

from federation.runs.run_folder import EVENTS, INFLUENCE, ROUNDS
from fedraw_app.influence import RARE_GROUP
from rarefl.report.drawing import Picture, band, legend_below, looks, panels
from rarefl.report.label_pictures import confusion_picture, gather
from rarefl.report.runs import Findings
from rarefl.report.sections import Section

_POINTS = 200
_SITE_COLUMNS = ("site", "rare", "share_of_updates", "share_of_weight")
_GROUPS = ((0, "other sites", "#0072B2", "o"), (1, "sites with rare labels", "#D55E00", "^"))


def training_pictures(section: Section, findings: Findings) -> list[Picture]:
    """Return the pictures of a section of trainings; those whose tables no run has are left out."""
    columns = ["time", "rare_accuracy", "common_accuracy"]
    rounds = gather(section, lambda run: findings.table(run, ROUNDS, columns))
    influence = gather(section, lambda run: findings.table(run, INFLUENCE, _SITE_COLUMNS))
    events = gather(section, lambda run: findings.table(run, EVENTS, ["kind", "staleness"]))
    pictures = [
        None if rounds is None else _accuracy(section, rounds),
        None if influence is None else _biases(section, influence),
        None if events is None else _staleness(section, events),
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


def _biases(section: Section, influence: pd.DataFrame) -> Picture:
    sites = influence[influence["site"] != RARE_GROUP]
    methods = [method for method in section.methods if (sites["method"] == method).any()]
    figure, grid = panels(methods)
    most = 105 * sites[["share_of_updates", "share_of_weight"]].to_numpy().max()
    for axes, method in zip(grid, methods, strict=True):
        of_method = sites[sites["method"] == method]
        for rare, name, colour, marker in _GROUPS:
            group = 100 * of_method.loc[of_method["rare"] == rare, ["share_of_updates", "share_of_weight"]]
            updates, weight = group.to_numpy().T
            axes.scatter(updates, weight, color=colour, marker=marker, alpha=0.7, s=24, label=name)
        axes.plot([0, most], [0, most], color="grey", linestyle="--", linewidth=1)
        axes.set_xlabel("share of the updates in %")
        axes.set_ylabel("share of the weight in %")
    legend_below(figure, grid[0])
    caption = (
        "Participation against influence: a point a site and seed. On the dashed line a site counts as much "
        "as it takes part."
    )
    return Picture(f"{section.slug}-influence", caption, figure)


def _staleness(section: Section, events: pd.DataFrame) -> Picture:
    stale = events.loc[events["kind"] == "aggregate", ["method", "staleness"]]
    methods = [method for method in section.methods if (stale["method"] == method).any()]
    figure, grid = panels(methods or ["no update"], height=2.6)
    for axes, method in zip(grid, methods, strict=False):
        shares = 100 * stale.loc[stale["method"] == method, "staleness"].value_counts(normalize=True)
        axes.bar(shares.index, shares, width=0.9, color="#0072B2")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("staleness in versions")
        axes.set_ylabel("aggregated updates in %")
    caption = "Staleness: versions published between the dispatch of an update and its arrival, all seeds."
    return Picture(f"{section.slug}-staleness", caption, figure)
