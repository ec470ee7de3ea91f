"""Pictures show the numbers that they are given, and every method can be told from the others in grey."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from rarefl.report.drawing import looks, panels
from rarefl.report.label_pictures import label_pictures
from rarefl.report.reading import read
from rarefl.report.runs import Findings
from rarefl.report.sections import Section, sections
from rarefl.report.training_pictures import training_pictures
from tests.rarefl.report_runs import label_rounds, training

QUERIES = "label_round,site,query_model,class_0,class_1\n"


def only_section(path: Path) -> tuple[Section, Findings]:
    findings = read([path])
    (section,) = sections(findings)
    return section, findings


@pytest.fixture
def rounds(tmp_path: Path) -> dict[str, Figure]:
    # Two sites, two label rounds, two seeds; the pool has 30 and 10 images.
    for seed, accuracy, model in ((1, 0.6, "global"), (2, 0.8, "local")):
        folder = label_rounds(tmp_path / str(seed), "fairfal", seed, [0.5, accuracy])
        rows = "1,a,,4,0\n1,b,,2,2\n" if seed == 1 else "1,a,,8,0\n1,b,,0,0\n"
        rows += f"2,a,{model},1,3\n2,b,local,3,1\n"
        (folder / "queries.csv").write_text(QUERIES + rows)
        (folder / "confusion.csv").write_text(f"label,class_0,class_1\n0,{seed},1\n1,0,4\n")
    pictures = label_pictures(*only_section(tmp_path))
    return {picture.slug.removeprefix("digits-label-rounds-"): picture.figure for picture in pictures}


def test_learning_curves(rounds: dict[str, Figure]) -> None:
    axes = rounds["curves"].axes[0]
    assert axes.get_title() == "accuracy = balanced accuracy %"
    (line,) = axes.lines
    assert list(line.get_xdata()) == pytest.approx([10, 20])
    assert list(line.get_ydata()) == pytest.approx([50, 70])
    # Accuracies of 60 and 80 % deviate by 10 * sqrt(2).
    edges = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert (edges.min(), edges.max()) == pytest.approx((50, 70 + 10 * 2**0.5))


def test_bought_labels_stand_beside_the_pool(rounds: dict[str, Figure]) -> None:
    axes = rounds["classes"].axes[0]
    # Means over seeds: (6, 2) and (8, 0) make (7, 1), then (4, 4).
    assert [[bar.get_height() for bar in bars] for bars in axes.containers] == [[7, 1], [4, 4]]
    assert [[bar.get_y() for bar in bars] for bars in axes.containers] == [[0, 0], [7, 1]]
    # 16 labels at the pool's shares: 12 and 4.
    assert axes.collections[0].get_offsets()[:, 1].tolist() == [12, 4]
    # A class name is no formula and no markup.
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["cat & dog", r"<b>\$x\$"]


def test_imbalance_is_of_all_labels_so_far(rounds: dict[str, Figure]) -> None:
    line, pool = rounds["imbalance"].axes[0].lines
    # (6, 2) is 3, (8, 0) counts as 8 to 1: sqrt(3 * 8). Then (10, 6) and (12, 4): sqrt(10 / 6 * 3).
    assert list(line.get_ydata()) == pytest.approx([24**0.5, 5**0.5])
    assert list(pool.get_ydata()) == [3, 3]


def test_query_models_and_confusion_are_shares_over_seeds(rounds: dict[str, Figure]) -> None:
    field = rounds["models"].axes[0].images[0].get_array()
    assert field.tolist() == [[0.5], [0.0]]
    field = rounds["confusion"].axes[0].images[0].get_array()
    np.testing.assert_allclose(field, [[(1 / 2 + 2 / 3) / 2, (1 / 2 + 1 / 3) / 2], [0, 1]])


def test_a_confusion_that_is_not_square_is_left_out(tmp_path: Path) -> None:
    folder = label_rounds(tmp_path / "run", "random", 1, [0.5])
    (folder / "confusion.csv").write_text("label,class_0,class_1\n0,1,1\n")
    section, findings = only_section(tmp_path)
    assert len(label_pictures(section, findings)) == 1
    assert "confusion.csv is not square" in findings.warnings[0]


def test_training(tmp_path: Path) -> None:
    for seed, accuracy, end in ((1, 0.6, 10), (2, 0.8, 20)):
        folder = training(tmp_path / str(seed), "fedraw", seed, 0.5, {})
        rounds = f"time,rare_accuracy,common_accuracy\n0,0,0.1\n4,{accuracy},0.5\n{end},0.9,0.9\n"
        (folder / "rounds.csv").write_text(rounds)
        sites = "a,0,0.75,0.5\nb,1,0.25,0.5\n(rare sites),1,0.25,0.5\n"
        (folder / "influence.csv").write_text(f"site,rare,share_of_updates,share_of_weight\n{sites}")
        (folder / "events.csv").write_text(
            "kind,staleness\narrive,7\naggregate,0\naggregate,0\naggregate,2\n"
        )
    pictures = training_pictures(*only_section(tmp_path))
    drawn = {picture.slug.removeprefix("digits-training-"): picture.figure for picture in pictures}
    assert set(drawn) == {"accuracy", "influence", "staleness"}
    (line,) = drawn["accuracy"].axes[0].lines
    moments, values = line.get_xdata(), line.get_ydata()
    # Values are held until the next one, and the curve ends with the first seed, at 10 s.
    assert moments[-1] == 10
    assert values[moments < 4] == pytest.approx(0)
    assert values[(moments > 4) & (moments < 10)] == pytest.approx(70)
    assert values[-1] == pytest.approx(85)
    others, rare = drawn["influence"].axes[0].collections
    assert others.get_offsets().tolist() == [[75, 50]] * 2
    assert rare.get_offsets().tolist() == [[25, 50]] * 2
    bars = {bar.get_x() + bar.get_width() / 2: bar.get_height() for bar in drawn["staleness"].axes[0].patches}
    assert bars == pytest.approx({0: 100 * 2 / 3, 2: 100 / 3})


def test_label_rounds_of_an_asynchronous_strategy(tmp_path: Path) -> None:
    influence = {"rare_share_of_clients": 0.5, "rare_share_of_updates": 0.25, "rare_share_of_weight": 0.3}
    folder = label_rounds(tmp_path / "run", "random", 1, [0.5, 0.6], influence, strategy__name="fedraw")
    rows = "1,a,0,0.5,0.5\n1,b,1,0.5,0.5\n2,a,0,0.75,0.7\n2,b,1,0.25,0.3\n2,(rare sites),1,0.25,0.3\n"
    (folder / "influence.csv").write_text(f"label_round,site,rare,share_of_updates,share_of_weight\n{rows}")
    (folder / "events.csv").write_text("label_round,kind,staleness\n1,aggregate,0\n2,aggregate,1\n")
    pictures = label_pictures(*only_section(tmp_path))
    drawn = {picture.slug.removeprefix("digits-label-rounds-"): picture for picture in pictures}
    assert set(drawn) == {"curves", "influence", "staleness"}
    others, rare = drawn["influence"].figure.axes[0].collections
    assert others.get_offsets().tolist() == [[75, 70]]
    assert rare.get_offsets().tolist() == [[25, 30]]
    assert "in the training of the last label round." in drawn["influence"].caption
    assert len(drawn["staleness"].figure.axes[0].patches) == 2


def test_methods_differ_in_more_than_colour() -> None:
    found = looks([str(place) for place in range(20)])
    assert len({(look.marker, look.dashes) for look in found.values()}) == 20
    first = list(found.values())[:7]
    assert len({to_hex(look.colour) for look in first}) == 7


def test_panels_fill_rows_of_three() -> None:
    figure, axes = panels(list("abcde"))
    assert (
        [panel.get_title() for panel in axes] == list("abcde") == [panel.get_title() for panel in figure.axes]
    )
