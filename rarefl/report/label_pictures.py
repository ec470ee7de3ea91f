"""Pictures of label rounds: learning curves, what was bought, which model was asked, what is confused."""

import matplotlib as mpl
import numpy as np
import pandas as pd

from federation.runs.run_folder import CONFUSION, QUERIES
from rarefl.report.drawing import MOST_NAMES, Picture, band, legend_below, looks, panels, plain, shade
from rarefl.report.influence_pictures import influence_pictures
from rarefl.report.runs import Findings
from rarefl.report.sections import Section, gather
from rarefl.report.shown import curves, uneven

_KEYS = ["method", "seed", "label_round"]
_COLUMNS = ("label_round", "site", "query_model", "class_0")


def label_pictures(section: Section, findings: Findings) -> list[Picture]:
    """Return the pictures of a section of label rounds; those whose tables no run has are left out."""
    pictures = [_curves(section)]
    queries = gather(section, lambda run: findings.table(run, QUERIES, _COLUMNS, others=True))
    if queries is not None:
        bought = _bought(queries)
        pictures += [_classes(section, bought), _imbalance(section, bought)]
        if queries["query_model"].notna().any():
            pictures.append(_models(section, queries))
    if uneven(section.rows):
        pictures += influence_pictures(section, findings)
    if (confusion := confusion_picture(section, findings)) is not None:
        pictures.append(confusion)
    return pictures


def _curves(section: Section) -> Picture:
    kinds, styles = curves(section.rows), looks(section.methods)
    kinds = tuple(kind for kind in kinds if section.rows[kind.name].notna().any())
    figure, grid = panels([kind.heading for kind in kinds] or ["accuracy %"])
    for axes, kind in zip(grid, kinds, strict=False):
        for method in section.methods:
            rows = section.rows[section.rows["method"] == method].groupby("label_round")
            values = kind.scale * rows[kind.name].agg(["mean", "std"])
            ratios = 100 * rows["label_ratio"].mean()
            band(axes, ratios, values["mean"], values["std"], method, styles[method])
        axes.set_xlabel("labelled share of the pool in %")
    legend_below(figure, grid[0])
    caption = "Learning curves: mean over seeds and one standard deviation, after each label round."
    return Picture(f"{section.slug}-curves", caption, figure)


def _bought(queries: pd.DataFrame) -> pd.DataFrame:
    """Return the labels bought by method, seed and label round; a column a class."""
    classes = sorted(
        (name for name in map(str, queries) if name.startswith("class_")), key=lambda n: int(n[6:])
    )
    return queries.groupby(_KEYS, sort=False)[classes].sum().sort_index(level="label_round")


def _pool(section: Section) -> np.ndarray | None:
    """Return the mean number of training images of each class, (C,); None where no run tells it."""
    told = [run.summary.get("train_class_counts") for _, run in section.runs]
    counts = [per_class for per_class in told if per_class]
    return np.mean(counts, axis=0) if counts else None


def class_names(section: Section, number: int) -> list[str]:
    """Return the names of the classes, their numbers where the runs tell none."""
    told = section.runs[0][1].summary.get("class_names") or []
    return list(map(str, told)) if len(told) == number else [str(label) for label in range(number)]


def _classes(section: Section, bought: pd.DataFrame) -> Picture:
    names, pool = class_names(section, bought.shape[1]), _pool(section)
    methods = [method for method in section.methods if method in bought.index.get_level_values("method")]
    figure, grid = panels(methods, width=max(3.4, 0.28 * min(len(names), MOST_NAMES)))
    places = range(len(names))
    for axes, method in zip(grid, methods, strict=True):
        by_round = bought.loc[method].groupby("label_round").mean()
        colours = mpl.colormaps["cividis"](np.linspace(0.0, 1.0, len(by_round)))
        base = np.zeros(len(names))
        for (label_round, counts), colour in zip(by_round.iterrows(), colours, strict=True):
            axes.bar(
                places,
                counts,
                bottom=base,
                color=colour,
                edgecolor="white",
                linewidth=0.3,
                label=f"label round {label_round}",
            )
            base += counts.to_numpy()
        if pool is not None:
            axes.scatter(
                places,
                base.sum() * pool / pool.sum(),
                marker="_",
                s=70,
                color="#D55E00",
                linewidths=2,
                zorder=3,
                label="as many, at the pool's shares",
            )
        if len(names) <= MOST_NAMES:
            axes.set_xticks(places, [plain(name) for name in names], rotation=60, ha="right")
        axes.set_ylabel("labels bought")
    legend_below(figure, grid[0])
    caption = "Labels bought by class and label round, mean over seeds"
    caption += "; dashes: the same number of labels at the pool's shares." if pool is not None else "."
    return Picture(f"{section.slug}-classes", caption, figure)


def _imbalance(section: Section, bought: pd.DataFrame) -> Picture:
    held = bought.groupby(["method", "seed"]).cumsum()
    ratio = (held.max(axis=1) / held.min(axis=1).clip(lower=1)).map(np.log)
    figure, (axes,) = panels(["imbalance of the labelled set"], width=5.6, height=3.4)
    styles = looks(section.methods)
    for method in section.methods:
        if method in ratio.index.get_level_values("method"):
            by_round = ratio.loc[method].groupby("label_round").agg(["mean", "std"])
            low, high = (np.exp(by_round["mean"] + sign * by_round["std"].fillna(0)) for sign in (-1, 1))
            band(axes, by_round.index, np.exp(by_round["mean"]), np.nan * low, method, styles[method])
            axes.fill_between(by_round.index, low, high, color=styles[method].colour, alpha=0.15, linewidth=0)
    if (pool := _pool(section)) is not None:
        axes.axhline(pool.max() / max(pool.min(), 1), color="grey", linestyle=":", label="the pool")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}")
    axes.set_xlabel("label round")
    axes.set_xticks(sorted(set(bought.index.get_level_values("label_round"))))
    axes.set_ylabel("largest class over smallest")
    legend_below(figure, axes)
    caption = (
        "Imbalance of all labels bought so far, largest class over smallest (a class without a label counts "
        "as one label): geometric mean over seeds and one standard deviation of its logarithm."
    )
    return Picture(f"{section.slug}-imbalance", caption, figure)


def _models(section: Section, queries: pd.DataFrame) -> Picture:
    asked = queries.dropna(subset=["query_model"])
    asked = asked.assign(share=(asked["query_model"] == "global").astype(float))
    methods = [method for method in section.methods if (asked["method"] == method).any()]
    sites = asked["site"].nunique()
    figure, grid = panels(methods, height=max(2.4, 0.2 * min(sites, MOST_NAMES) + 1.2), shared=False)
    for axes, method in zip(grid, methods, strict=True):
        table = asked[asked["method"] == method].pivot_table(
            index="site", columns="label_round", values="share", aggfunc="mean"
        )
        image = shade(axes, table.to_numpy(), list(table.index), list(table.columns), numbers=True)
        axes.set_xlabel("label round")
    figure.colorbar(image, ax=grid, label="share of seeds: global model")
    caption = "Query model of each site and label round: 1 is the global model, 0 the local-only one."
    return Picture(f"{section.slug}-models", caption, figure)


def confusion_picture(section: Section, findings: Findings) -> Picture | None:
    """Return the confusion of the final models, a panel a method; None where no run has it."""
    shares: dict[str, list[np.ndarray]] = {}
    for method, run in section.runs:
        if (frame := findings.table(run, CONFUSION, ["class_0"], others=True)) is not None:
            counts = frame.filter(like="class_").to_numpy(dtype=np.float64)
            if counts.shape[0] != counts.shape[1]:
                findings.warnings.append(f"{run.name}: {CONFUSION} is not square; its picture lacks this run")
                continue
            with np.errstate(invalid="ignore"):
                shares.setdefault(method, []).append(counts / counts.sum(axis=1, keepdims=True))
    if not shares:
        return None
    number = next(iter(shares.values()))[0].shape[1]
    names = class_names(section, number)
    figure, grid = panels(list(shares), width=3.8, height=3.8, shared=False)
    for axes, several in zip(grid, shares.values(), strict=True):
        image = shade(axes, np.mean(several, axis=0), names, names, numbers=True)
        axes.set_xlabel("predicted")
        axes.set_ylabel("true")
        axes.tick_params(axis="x", rotation=90)
    figure.colorbar(image, ax=grid, label="share of the true label")
    caption = "Confusion of the final model on the test images, by row, mean over seeds."
    return Picture(f"{section.slug}-confusion", caption, figure)
