"""Tables against numbers worked out by hand, in each of their forms."""

from pathlib import Path

import pandas as pd
import pytest

from rarefl.report.printed import Cell, PrintedTable, latex, latex_text, markdown, markdown_text
from rarefl.report.reading import read
from rarefl.report.section_tables import section_tables
from rarefl.report.sections import Section, sections
from tests.rarefl.report_runs import label_rounds, training, write_run


def only_section(path: Path) -> Section:
    (section,) = sections(read([path]))
    return section


def lines(table: PrintedTable) -> list[list[str]]:
    return [[f"*{cell.text}*" if cell.bold else cell.text for cell in row] for row in table.rows]


def test_label_rounds(tmp_path: Path) -> None:
    # random: 80, 84, 91: mean 85, deviation sqrt(62 / 2) = 5.6. fairfal: 90, 92: mean 91, deviation 1.4
    for seed, accuracy in ((1, 0.80), (2, 0.84), (3, 0.91)):
        label_rounds(tmp_path / f"r{seed}", "random", seed, [0.5, accuracy])
    for seed, accuracy in ((1, 0.90), (2, 0.92)):
        label_rounds(tmp_path / f"f{seed}", "fairfal", seed, [0.5, accuracy])
    tables, notes = section_tables(only_section(tmp_path))
    means, areas, tests, wins = tables
    assert means.headings == ("labelled", "measure", "fairfal", "random")
    assert "over 2 to 3 seeds" in means.caption
    assert lines(means) == [
        ["10.0 %", "accuracy = balanced accuracy %", "50.0 ± 0.0", "50.0 ± 0.0"],
        ["", "rare-label accuracy %", "25.0 ± 0.0", "25.0 ± 0.0"],
        ["", "macro F1 %", "50.0 ± 0.0", "50.0 ± 0.0"],
        ["", "rare labels bought %", "5.0 ± 0.0", "5.0 ± 0.0"],
        ["20.0 %", "accuracy = balanced accuracy %", "*91.0 ± 1.4*", "85.0 ± 5.6"],
        ["", "rare-label accuracy %", "*45.5 ± 0.7*", "42.5 ± 2.8"],
        ["", "macro F1 %", "*91.0 ± 1.4*", "85.0 ± 5.6"],
        ["", "rare labels bought %", "5.0 ± 0.0", "5.0 ± 0.0"],
        ["", "seeds", "2", "3"],
    ]
    # One trapezoid: the mean of both ends. random: (50 + 85) / 2.
    assert lines(areas)[0] == ["area, accuracy = balanced accuracy %", "*70.5 ± 0.7*", "67.5 ± 2.8"]
    # Seeds 1 and 2: +10 and +8, Walsh averages 10, 9, 8; both positive: p 2 / 4
    assert lines(tests)[0] == [
        "accuracy = balanced accuracy %, 20.0 % labelled",
        *("fairfal − random", "2", "+9.0", "0", "0.500", "0.500"),
    ]
    assert lines(wins)[:2] == [
        ["accuracy = balanced accuracy %, 20.0 % labelled", "fairfal", "–", "2/0/0"],
        ["", "random", "0/0/2", "–"],
    ]
    assert notes == [notes[0]]
    assert "2 seeds the signed-rank test cannot reach 5 %" in notes[0]
    told = means.data[(means.data["label_round"] == 2) & (means.data["measure"] == "macro F1 %")]
    assert told[["method", "n", "best"]].to_numpy().tolist() == [["fairfal", 2, 1], ["random", 3, 0]]
    assert told["sd"].tolist() == pytest.approx([2**0.5, 31**0.5])


INFLUENCE = {"rare_share_of_clients": 0.5, "rare_share_of_weight": 0.25, "replaced_per_flush": 0.5}


def test_label_rounds_of_an_asynchronous_strategy_tell_who_shaped_the_model(tmp_path: Path) -> None:
    even = INFLUENCE | {"rare_share_of_updates": 0.5, "replaced_per_flush": 0.0}
    label_rounds(tmp_path / "a", "random", 1, [0.5], even)
    label_rounds(
        tmp_path / "b",
        "random",
        1,
        [0.5],
        INFLUENCE | {"rare_share_of_updates": 0.125},
        strategy__name="fedraw",
    )
    (means, *_), _ = section_tables(only_section(tmp_path))
    assert means.headings == ("labelled", "measure", "fedavg", "fedraw")
    assert lines(means)[4:] == [
        ["", "participations of rare sites %", "50.0", "12.5"],
        ["", "weight of rare sites %", "25.0", "25.0"],
        ["", "updates replaced a flush", "0.00", "0.50"],
        ["", "seeds", "1", "1"],
    ]


def test_rounds_in_which_all_take_part_say_nothing_of_it(tmp_path: Path) -> None:
    label_rounds(tmp_path / "a", "random", 1, [0.5], INFLUENCE | {"rare_share_of_updates": 0.5})
    (means, *_), _ = section_tables(only_section(tmp_path))
    assert not [row for row in lines(means) if "rare sites" in row[1]]


def test_one_seed_has_no_deviation_and_no_test(tmp_path: Path) -> None:
    for name in ("random", "fairfal"):
        label_rounds(tmp_path / name, name, 1, [0.5])
    (means, areas, tests, _), notes = section_tables(only_section(tmp_path))
    assert "One seed, so there is no standard deviation." in means.caption
    assert lines(means)[0] == ["10.0 %", "accuracy = balanced accuracy %", "50.0", "50.0"]
    assert lines(tests)[0][2:] == ["1", "+0.0", "–", "–", "–"]
    assert notes == ["No two methods share two seeds, so there is no test of significance."]
    # A curve of one label round has no area.
    assert [row[0] for row in lines(areas)] == ["seconds a run", "seeds"]


def test_one_method_is_not_compared(tmp_path: Path) -> None:
    label_rounds(tmp_path / "run", "random", 1, [0.5])
    tables, notes = section_tables(only_section(tmp_path))
    assert len(tables) == 2
    assert notes == ["One method, so there is nothing to compare."]


def test_a_run_that_ended_early_is_in_no_area_and_said(tmp_path: Path) -> None:
    label_rounds(tmp_path / "a", "random", 1, [0.5, 0.7])
    label_rounds(tmp_path / "b", "random", 2, [0.5])
    label_rounds(tmp_path / "c", "fairfal", 1, [0.5])
    (means, areas, *_), notes = section_tables(only_section(tmp_path))
    assert lines(means)[4][2:] == ["70.0 (n = 1)", "–"]
    assert lines(areas)[0] == ["area, accuracy = balanced accuracy %", "60.0 (n = 1)", "–"]
    assert "random, seed 2: only 1 label rounds; it is in no area and not in the later rounds." in notes


def test_training(tmp_path: Path) -> None:
    training(tmp_path / "a1", "fedbuff", 1, 0.8, {"0.70": 3.0, "0.75": 10.0, "0.80": None})
    training(tmp_path / "a2", "fedbuff", 2, 0.8, {"0.70": 3.0, "0.75": 12.0, "0.80": 20.0})
    training(tmp_path / "b1", "fedraw", 1, 0.9, {"0.70": 3.0, "0.75": 8.0, "0.80": 9.0})
    training(tmp_path / "b2", "fedraw", 2, 0.9, {"0.70": 3.0, "0.75": 8.0, "0.80": 9.0})
    (means, _, _), _ = section_tables(only_section(tmp_path))
    assert "75 % is the highest accuracy with a noted time that every run reached." in means.caption
    assert lines(means) == [
        ["accuracy %", "80.0 ± 0.0", "*90.0 ± 0.0*"],
        ["rare-label accuracy %", "40.0 ± 0.0", "*45.0 ± 0.0*"],
        ["common-label accuracy %", "80.0 ± 0.0", "*90.0 ± 0.0*"],
        ["participations of rare sites %", "8.0 ± 0.0", "8.0 ± 0.0"],
        ["weight of rare sites %", "20.0 ± 0.0", "20.0 ± 0.0"],
        ["updates replaced a flush", "0.50 ± 0.00", "0.50 ± 0.00"],
        ["virtual time to 75 % accuracy", "11.0 ± 1.4", "*8.0 ± 0.0*"],
        ["versions", "30 ± 0", "30 ± 0"],
        ["seconds a run", "10 ± 0", "10 ± 0"],
        ["seeds", "2", "2"],
    ]


def test_no_common_accuracy_is_said(tmp_path: Path) -> None:
    training(tmp_path / "a", "fedbuff", 1, 0.8, {"0.70": None, "0.75": None}, clock__name="wall")
    (means,), _ = section_tables(only_section(tmp_path))
    assert "No accuracy with a noted time was reached by every run." in means.caption
    assert not [row for row in lines(means) if "time to" in row[0]]


def test_measures_that_a_file_lacks_are_in_no_row(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    path.write_text("run,query.name,seed,label_round,label_ratio,accuracy\nx,a,1,1,0.1,0.5\ny,b,1,1,0.1,\n")
    (means, *_), _ = section_tables(only_section(path))
    assert lines(means) == [["10.0 %", "accuracy %", "50.0", "–"], ["", "seeds", "1", "1"]]


def test_a_schedule_without_training_has_shares_and_no_accuracy(tmp_path: Path) -> None:
    for name in ("fedbuff", "fedraw"):
        result = {"version": 30, "time": 50.0, "rare_share_of_weight": 0.2}
        summary = {"result": result, "time_to_accuracy": {"0.50": None}}
        write_run(tmp_path / name, summary, app="fedraw", strategy__name=name)
    (means,), notes = section_tables(only_section(tmp_path))
    assert [row[0] for row in lines(means)] == [
        *("weight of rare sites %", "versions", "seconds a run", "seeds"),
    ]
    assert notes == ["No measure to compare."]


TABLE = PrintedTable(
    "x",
    "50 % & <b>",
    ("a_b", "n|m"),
    ((Cell("x < y_z"), Cell("1.0 ± 0.5", True)),),
    1,
    pd.DataFrame(),
)


def test_markdown() -> None:
    assert markdown(TABLE).splitlines() == [
        "| a\\_b | n\\|m |",
        "| --- | ---: |",
        "| x &lt; y\\_z | **1.0 ± 0.5** |",
    ]
    assert markdown_text("<script>*&*\n[a](b)`c`\\") == "&lt;script&gt;\\*&amp;\\* \\[a\\](b)\\`c\\`\\\\"


def test_latex() -> None:
    text = latex(TABLE)
    assert "\\caption{50 \\% \\& \\textless{}b\\textgreater{}}" in text
    assert "\\begin{tabular}{lr}\n\\toprule\na\\_b & n|m \\\\\n\\midrule\n" in text
    assert "x \\textless{} y\\_z & \\textbf{1.0 $\\pm$ 0.5} \\\\\n\\bottomrule" in text
    assert latex_text("\\{}#$%&_~^") == (
        "\\textbackslash{}\\{\\}\\#\\$\\%\\&\\_\\textasciitilde{}\\textasciicircum{}"
    )
