"""Draw the README's picture, docs/pictures/results.png, from the measured runs in docs/results/.

    python docs/pictures/draw_results.py [FILE.png]

Left: rare-label accuracy of FairFAL and two other queries as labels are bought. Middle and right: what
becomes of rare and of common labels when the sites that hold the rare ones are slow. Bands and whiskers are
one standard deviation over seeds, dots are single seeds.
"""

import sys
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from rarefl.report.drawing import band, looks, panels  # noqa: E402

RESULTS = ROOT / "docs" / "results"
STRATEGIES = {"fedavg": "FedAvg\n(in rounds)", "fedbuff": "FedBuff", "fedraw": "FedRAW"}


def draw_results() -> Figure:
    """Return the figure."""
    figure, axes = panels(
        ("FairFAL on Fashion-MNIST: rare labels", "FedRAW on digits", "FedRAW on Fashion-MNIST"),
        shared=False,
    )
    draw_queries(axes[0], pd.read_csv(RESULTS / "fairfal-fmnist-small.csv"))
    for panel, name in zip(axes[1:], ("fedraw-digits", "fedraw-fmnist"), strict=True):
        draw_strategies(panel, pd.read_csv(RESULTS / f"{name}.csv"))
    axes[0].set_ylabel("accuracy in %")
    axes[1].legend(loc="upper center", ncols=2, fontsize="small")
    return figure


def draw_queries(axes: Axes, runs: pd.DataFrame) -> None:
    """Draw rare-label accuracy over the labelled share, a line a query strategy."""
    queries = list(runs["query.name"].unique())
    for query, look in looks(queries).items():
        of_query = runs[runs["query.name"] == query].groupby("label_round")
        accuracy = of_query["rare_accuracy"]
        share = 100 * of_query["label_ratio"].mean()
        band(axes, share, 100 * accuracy.mean(), 100 * accuracy.std(), query, look)
    axes.set_xlabel("labelled share in %")
    axes.legend(loc="lower right", fontsize="small")


def draw_strategies(axes: Axes, runs: pd.DataFrame) -> None:
    """Draw common- and rare-label accuracy of the last five evaluations, a pair of bars a strategy.

    FedRAW is the one with the default settings.
    """
    default = (runs["strategy.keep"] == "newest") & (runs["strategy.rarity-weight"] == 6)
    runs = runs[default | (runs["strategy.name"] != "fedraw")]
    colours = looks(("common", "rare"))
    for place, strategy in enumerate(STRATEGIES):
        for side, labels in ((-0.2, "common"), (0.2, "rare")):
            accuracy = 100 * runs.loc[runs["strategy.name"] == strategy, f"{labels}_accuracy_last5"]
            axes.bar(
                place + side,
                accuracy.mean(),
                width=0.36,
                yerr=accuracy.std(),
                capsize=3,
                color=colours[labels].colour,
                alpha=0.75,
                label=f"{labels} labels" if place == 0 else None,
            )
            axes.plot([place + side] * len(accuracy), accuracy, "k.", markersize=3)
    axes.set_xticks(range(len(STRATEGIES)), list(STRATEGIES.values()))
    axes.set_ylim(0, 120)
    axes.set_yticks(range(0, 101, 20))
    axes.grid(axis="y", alpha=0.3)


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("results.png")
    draw_results().savefig(target, dpi=150)
