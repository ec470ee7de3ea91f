"""The learning curve of a run: accuracy over what has been labelled, and which labels were bought."""

from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from federation.colours import BLUE, GREEN, ORANGE

MOST_CLASS_NAMES = 30


@dataclass(frozen=True)
class LearningCurve:
    """How good the model was at the end of each label round, and what had been labelled by then.

    Attributes
    ----------
    label_ratios
        Labelled share of the pool at the end of each label round, in (0, 1]; (R,).
    accuracy, balanced_accuracy, rare_accuracy
        In [0, 1], NaN where there is none; (R,) each.
    bought
        Labels bought in each label round, by class; (R, C).
    class_names
        (C,).
    rare_labels
        Their names are drawn in bold.
    """

    label_ratios: Sequence[float]
    accuracy: Sequence[float]
    balanced_accuracy: Sequence[float]
    rare_accuracy: Sequence[float]
    bought: np.ndarray
    class_names: Sequence[str]
    rare_labels: Sequence[int] = ()


def draw_learning_curve(curve: LearningCurve) -> Figure:
    """Return a figure: accuracies over the label ratio, and below them the labels bought, class by class."""
    bought = np.asarray(curve.bought)
    if bought.shape != (len(curve.label_ratios), len(curve.class_names)):
        raise ValueError(
            f"bought has shape {bought.shape}; {len(curve.label_ratios)} label rounds and "
            f"{len(curve.class_names)} classes need one row a round and one column a class"
        )
    width = max(7.6, 0.32 * min(len(curve.class_names), MOST_CLASS_NAMES))
    figure = Figure(figsize=(width, 7.2), layout="constrained")
    upper, lower = figure.subplots(2, 1)
    _draw_accuracies(upper, curve)
    _draw_labels(lower, curve, bought)
    return figure


def _draw_accuracies(axes: Axes, curve: LearningCurve) -> None:
    # With a balanced test split the first two are equal: the wide line stays visible under the narrow one.
    lines = (
        ("accuracy", curve.accuracy, BLUE, "o", 5.0),
        ("balanced accuracy", curve.balanced_accuracy, ORANGE, "s", 1.5),
        ("rare-label accuracy", curve.rare_accuracy, GREEN, "^", 1.5),
    )
    for name, values, colour, marker, width in lines:
        if np.isfinite(values).any():
            axes.plot(curve.label_ratios, values, color=colour, marker=marker, linewidth=width, label=name)
    axes.set_xlabel("labelled share of the pool")
    axes.set_ylabel("accuracy on the server's test images")
    axes.set_xticks(curve.label_ratios, [f"{ratio:.1%}" for ratio in curve.label_ratios])
    axes.set_ylim(0.0, 1.0)
    axes.grid(alpha=0.3)
    if axes.lines:
        axes.legend(loc="lower right")


def _draw_labels(axes: Axes, curve: LearningCurve, bought: np.ndarray) -> None:
    rounds, classes = bought.shape
    colours = mpl.colormaps["cividis"](np.linspace(0.0, 1.0, rounds))
    base = np.zeros(classes)
    for index in range(rounds):
        axes.bar(
            range(classes),
            bought[index],
            bottom=base,
            color=colours[index],
            edgecolor="white",
            linewidth=0.5,
            label=f"label round {index + 1}",
        )
        base += bought[index]
    axes.set_xlabel("class (rare labels in bold)" if curve.rare_labels else "class")
    axes.set_ylabel("labels bought")
    if classes <= MOST_CLASS_NAMES:
        axes.set_xticks(range(classes), curve.class_names, rotation=45, ha="right", rotation_mode="anchor")
        for label in curve.rare_labels:
            axes.get_xticklabels()[label].set_fontweight("bold")
    if rounds:
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize="small")
