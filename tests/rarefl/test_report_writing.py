"""The report on the disk, of real runs and of names that would break a page."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from federation.config.run_config import default_run_config
from rarefl.cli import app
from rarefl.client_app import app as client_app
from rarefl.report.report import build
from rarefl.report.runs import ReportError
from rarefl.report.writing import report_markdown, write
from rarefl.server_app import app as server_app
from rarefl.settings import read_words
from rarefl.sweep_plan import plan_runs
from rarefl.sweep_results import result_rows
from tests.inprocess import run_in_process
from tests.rarefl.report_runs import label_rounds, training

ROOT = Path(__file__).resolve().parents[2]
SMALL = {"data.clients": 2, "data.alpha": 5.0, "train.local-epochs": 1, "train.local-only-epochs": 1}


def run(folder: Path, **overrides: Any) -> None:
    config = default_run_config() | SMALL | {"output.dir": str(folder), "train.rounds": 1}
    config |= {key.replace("__", ".").replace("_", "-"): value for key, value in overrides.items()}
    run_in_process(server_app, client_app, 2, config)


class Page(HTMLParser):
    """Every reference of a page, its tags, and the text of its cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.references: list[str] = []
        self.alternatives: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        given = dict(attrs)
        self.references += [given[key] or "" for key in ("src", "href") if key in given]
        if tag == "img":
            self.alternatives.append(given["alt"] or "")


def test_real_runs_of_both_apps(tmp_path: Path) -> None:
    for name in ("random", "fairfal"):
        run(tmp_path / "runs" / name, query__name=name, query__last_label_ratio=0.2)
    for name in ("fedbuff", "fedavg"):
        run(
            tmp_path / "runs" / name,
            app="fedraw",
            strategy__name=name,
            strategy__buffer_size=1,
            data__partition="rare-holders",
            data__rare_labels="8,9",
            evaluate__every=1,
        )
    result = CliRunner().invoke(app, ["report", str(tmp_path / "runs")])
    assert result.exit_code == 0, result.output
    assert "warning" not in result.stdout
    out = tmp_path / "runs" / "report"
    names = {"curves", "classes", "imbalance", "models", "confusion"}
    pictures = {f"digits-label-rounds-{name}" for name in names}
    pictures |= {f"digits-training-{name}" for name in ("accuracy", "influence", "staleness", "confusion")}
    assert {path.name for path in (out / "pictures").iterdir()} == {
        f"{name}.{kind}" for name in pictures for kind in ("svg", "png")
    }
    tables = {f"digits-label-rounds-{name}" for name in ("means", "areas", "tests", "wins")}
    tables |= {f"digits-training-{name}" for name in ("means", "tests", "wins")}
    assert {path.name for path in (out / "tables").iterdir()} == {
        f"{name}.{kind}" for name in tables for kind in ("csv", "tex")
    }
    means = pd.read_csv(out / "tables" / "digits-label-rounds-means.csv")
    summary = json.loads((tmp_path / "runs" / "fairfal" / "summary.json").read_text())
    row = means[(means["label_round"] == 2) & (means["measure"] == "rare-label accuracy %")]
    told = row.set_index("method")["mean"]["fairfal"]
    assert told == pytest.approx(100 * summary["label_rounds"][1]["rare_accuracy"])
    # A second report of the same folder finds the same runs, and its files are the same bytes.
    first = {path: path.read_bytes() for path in out.rglob("*.*")}
    assert CliRunner().invoke(app, ["report", str(tmp_path / "runs")]).exit_code == 0
    assert {path: path.read_bytes() for path in out.rglob("*.*")} == first
    page = Page((out / "report.html").read_text())
    assert page.tags.count("img") == len(pictures)


def strange_runs(path: Path) -> None:
    queries = "label_round,site,query_model,class_0,class_1\n1,<i>$s_1$ & co,local,3,0\n2,b,global,1,1\n"
    for seed in (1, 2):
        folder = label_rounds(path / f"<b>run_{seed}&$", "fairfal", seed, [0.5, 0.6])
        (folder / "queries.csv").write_text(queries)
        (folder / "confusion.csv").write_text("label,class_0,class_1\n0,3,1\n1,0,0\n")
    failed = training(path / "<script>alert(1)</script>", "fedraw", 1, 0.5, {}) / "summary.json"
    failed.write_text(json.dumps({"status": "failed", "reason": "<img src=x> | a_b*c"}))


def test_the_page_stands_alone_and_escapes_what_it_is_given(tmp_path: Path) -> None:
    strange_runs(tmp_path / "runs")
    write(build([tmp_path / "runs"]), tmp_path / "out")
    text = (tmp_path / "out" / "report.html").read_text()
    page = Page(text)
    assert not {"script", "link", "iframe", "b", "i"} & set(page.tags)
    assert all(link.startswith(("data:image/svg+xml;base64,", "#")) for link in page.references)
    assert not re.search(r"url\(|@import", text)
    assert "@media print" in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "&lt;img src=x&gt; | a_b*c" in text
    assert all(page.alternatives)
    told = (tmp_path / "out" / "report.md").read_text()
    assert "&lt;img src=x&gt; \\| a\\_b\\*c" in told
    assert "<" not in told


def test_a_results_file_gives_the_tables_of_its_runs(tmp_path: Path) -> None:
    preset = tmp_path / "preset.toml"
    preset.write_text("seed = 1\n")
    planned = plan_runs(read_words([str(preset), "query.name=random,fairfal"]), "1-3", tmp_path / "sweep")
    finished = []
    for place, one in enumerate(planned):
        folder = label_rounds(one.folder, one.varied["query.name"], one.seed, [0.5, 0.6 + place / 50])
        finished.append((one, json.loads((folder / "summary.json").read_text())))
    result_rows(finished, ["query.name"]).to_csv(tmp_path / "results.csv", index=False)
    write(build([tmp_path / "sweep"]), tmp_path / "out")
    (of_report,) = (tmp_path / "out").glob("*.csv")
    files = tmp_path / "sweep", tmp_path / "results.csv", of_report
    of_folders, of_file, again = (build([file]).parts[0] for file in files)
    assert of_folders.summary == again.summary
    compared = [*zip(of_folders.tables[:2], of_file.tables[:2], strict=True)]
    compared += zip(of_folders.tables[:2], again.tables[:2], strict=True)
    for ours, theirs in compared:
        assert ours.caption == theirs.caption
        columns = ["measure", "method"]
        pd.testing.assert_frame_equal(
            *(
                table.data.sort_values([*table.data.columns[:-6], *columns], ignore_index=True)
                for table in (ours, theirs)
            )
        )
    assert len(of_file.pictures) == 1


def test_the_tables_of_results_md_are_those_of_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    files = sorted(Path("docs/results").glob("*.csv"))
    assert len(files) >= 2
    page = (ROOT / "docs" / "results.md").read_text()
    told = report_markdown(build(files))
    tables = [block for block in told.split("\n\n") if block.startswith(("| labelled |", "| measure |"))]
    tables = [table for table in tables if not table.startswith("| measure | method")]
    assert len(tables) > len(files)
    assert all(table in page for table in tables)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    label_rounds(tmp_path / "run", "random", 1, [0.5])
    (tmp_path / "file").write_text("")
    with pytest.raises(ReportError, match=r"--out: cannot write to .*file.*: .*; give another folder"):
        write(build([tmp_path / "run"]), tmp_path / "file")


def test_the_command_names_what_is_wrong_in_one_line(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert result.exit_code == 1
    assert result.stderr.startswith("error: there is no finished run to report.")
    assert len(result.stderr.splitlines()) == 1
