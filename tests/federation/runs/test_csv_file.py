"""Tables that are cut back to what a checkpoint knows."""

import csv
import io
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from federation.errors import RunFolderError
from federation.runs.csv_file import CsvTable

ROWS = st.lists(
    st.dictionaries(
        st.sampled_from("abcd"),
        st.integers() | st.floats(allow_nan=False) | st.none() | st.text('x,"\n é', min_size=1),
        min_size=1,
    ),
    min_size=1,
    max_size=6,
)


@given(rows=ROWS, kept=st.integers(0, 6))
# Once a row whose only cell is a space was taken for an empty line when a later row had a new column.
@example(rows=[{"a": " "}, {"a": None, "b": None}], kept=2)
@example(rows=[{"a": None}, {"b": 1}], kept=1)
def test_rows_after_a_cut_come_again_byte_for_byte(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict], kept: int
) -> None:
    path = tmp_path_factory.mktemp("table") / "t.csv"
    table = CsvTable(path)
    states, contents = [table.state()], [b""]
    for row in rows:
        table.append([row])
        states.append(table.state())
        contents.append(path.read_bytes())
    kept = min(kept, len(rows))
    later = CsvTable(path)
    assert later.state() == states[-1]
    later.cut(**states[kept])
    assert (path.read_bytes() if path.exists() else b"") == contents[kept]
    for row in rows[kept:]:
        later.append([row])
    assert path.read_bytes() == contents[-1]
    lines = list(csv.reader(io.StringIO(path.read_text(encoding="utf-8"), newline="")))
    assert lines == [later.columns, *([_told(row.get(column)) for column in later.columns] for row in rows)]


def _told(cell: object) -> str:
    return "" if cell is None else str(cell)


@given(rows=ROWS)
def test_rows_in_one_go_are_those_one_after_the_other(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict]
) -> None:
    folder = tmp_path_factory.mktemp("table")
    once, one_by_one = CsvTable(folder / "a.csv"), CsvTable(folder / "b.csv")
    once.append(rows)
    for row in rows:
        one_by_one.append([row])
    assert once.state() == one_by_one.state()
    assert once.path.read_bytes() == one_by_one.path.read_bytes()


@given(
    number=st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.floats(width=32).map(np.float32)
    | st.integers(-(2**31), 2**31 - 1).map(np.int64)
    | st.booleans()
)
def test_numbers_are_written_as_pandas_writes_them(
    tmp_path_factory: pytest.TempPathFactory, number: float
) -> None:
    table = CsvTable(tmp_path_factory.mktemp("table") / "t.csv")
    table.append([{"a": 1, "b": number}])
    assert table.path.read_text() == pd.DataFrame([{"a": 1, "b": number}]).to_csv(index=False)


def test_cells_of_a_table_that_is_read_are_numbers_where_they_can_be(tmp_path: Path) -> None:
    table = CsvTable(tmp_path / "t.csv")
    assert table.read() == []
    table.append([{"site": "007", "n": 1, "x": math.nan}, {"site": "NA", "n": 2, "x": 0.5}])
    first, second = table.read()
    assert (first["site"], first["n"]) == ("007", 1)
    assert math.isnan(first["x"])
    assert second == {"site": "NA", "n": 2, "x": 0.5}
    table.append([])
    assert table.rows == 2


def test_many_rows_at_a_time_are_cut_too(tmp_path: Path) -> None:
    table = CsvTable(tmp_path / "t.csv")
    table.append([{"time": 0.1, "job": 1}, {"time": 1 / 3, "job": None}])
    state = table.state()
    table.append([{"time": 2.0, "job": 7}])
    CsvTable(table.path).cut(**state)
    assert table.path.read_text() == "time,job\n0.1,1\n0.3333333333333333,\n"
    again = CsvTable(table.path)
    again.append([{"time": 3.0, "job": 8}])
    assert table.path.read_text().splitlines()[-2:] == ["0.3333333333333333,", "3.0,8"]


@pytest.mark.parametrize("torn", ["2,0", '2,"half a te', "2"])
def test_a_last_row_that_was_cut_short_is_dropped(tmp_path: Path, torn: str) -> None:
    table = CsvTable(tmp_path / "t.csv")
    table.append([{"a": 1, "b": "x", "c": 2}])
    state = table.state()
    with table.path.open("a") as file:
        file.write(torn)
    later = CsvTable(table.path)
    assert later.rows == 1
    later.cut(**state)
    assert table.path.read_text() == "a,b,c\n1,x,2\n"


@pytest.mark.parametrize(
    ("text", "match"), [("a,b\n1,2\n", "has 1 rows"), ("a\n1\n2\n", "lacks the column b")]
)
def test_a_table_that_lost_something_is_named(tmp_path: Path, text: str, match: str) -> None:
    file = tmp_path / "t.csv"
    file.write_text(text)
    with pytest.raises(RunFolderError, match=rf"t\.csv {match}.* 2 rows with a, b"):
        CsvTable(file).cut(["a", "b"], 2)
    assert file.read_text() == text
