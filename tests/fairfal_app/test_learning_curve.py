"""The learning curve shows what it is given, says so on its axes, and leaves pyplot alone."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import federation
from fairfal_app.learning_curve import LearningCurve, draw_learning_curve

CURVE = LearningCurve(
    label_ratios=[0.1, 0.2, 0.3],
    accuracy=[0.5, 0.6, 0.7],
    balanced_accuracy=[0.4, 0.5, 0.6],
    rare_accuracy=[0.1, 0.3, 0.5],
    bought=np.array([[4, 1], [3, 2], [2, 3]]),
    class_names=("common", "rare"),
    rare_labels=(1,),
)


def test_lines_bars_and_axes() -> None:
    upper, lower = draw_learning_curve(CURVE).axes
    assert {line.get_label(): list(line.get_ydata()) for line in upper.lines} == {
        "accuracy": [0.5, 0.6, 0.7],
        "balanced accuracy": [0.4, 0.5, 0.6],
        "rare-label accuracy": [0.1, 0.3, 0.5],
    }
    assert upper.get_xlabel() == "labelled share of the pool"
    assert lower.get_ylabel() == "labels bought"
    assert [[bar.get_height() for bar in bars] for bars in lower.containers] == [[4, 1], [3, 2], [2, 3]]
    assert [[bar.get_y() for bar in bars] for bars in lower.containers] == [[0, 0], [4, 1], [7, 3]]
    assert [text.get_text() for text in lower.get_legend().get_texts()] == [
        f"label round {i}" for i in (1, 2, 3)
    ]
    assert [(tick.get_text(), tick.get_fontweight()) for tick in lower.get_xticklabels()] == [
        ("common", "normal"),
        ("rare", "bold"),
    ]


def test_lines_differ_in_colour_and_marker() -> None:
    upper, _ = draw_learning_curve(CURVE).axes
    assert len({line.get_color() for line in upper.lines}) == 3
    assert len({line.get_marker() for line in upper.lines}) == 3


def test_a_measure_that_there_is_not_has_no_line() -> None:
    none = [float("nan")] * 3
    curve = LearningCurve(
        [0.1, 0.2, 0.3], CURVE.accuracy, CURVE.balanced_accuracy, none, CURVE.bought, ("a", "b")
    )
    upper, _ = draw_learning_curve(curve).axes
    assert [line.get_label() for line in upper.lines] == ["accuracy", "balanced accuracy"]


@pytest.mark.parametrize(("rounds", "classes"), [(0, 3), (1, 1), (5, 40)])
@pytest.mark.filterwarnings("error")
def test_any_number_of_rounds_and_classes(rounds: int, classes: int, tmp_path: Path) -> None:
    values = [0.5] * rounds
    names = [f"class {i}" for i in range(classes)]
    curve = LearningCurve(values, values, values, values, np.ones((rounds, classes), int), names)
    draw_learning_curve(curve).savefig(tmp_path / "curve.png")


def test_a_wrong_table_of_labels_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"bought has shape \(1, 2\)"):
        draw_learning_curve(LearningCurve([0.1, 0.2], [0, 0], [0, 0], [0, 0], np.ones((1, 2)), ("a", "b")))


def test_pyplot_is_not_imported() -> None:
    code = "import sys, fairfal_app.learning_curve; sys.exit('matplotlib.pyplot' in sys.modules)"
    root = Path(federation.__file__).parent.parent
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root)
