"""Tables that are cut back to what a checkpoint knows."""

from pathlib import Path

import pytest
from hypothesis import given
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


@given(rows=ROWS, data=st.data())
def test_rows_after_a_cut_come_again_byte_for_byte(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("table") / "t.csv"
    table = CsvTable(path)
    states, contents = [table.state()], [b""]
    for row in rows:
        table.append(row)
        states.append(table.state())
        contents.append(path.read_bytes())
    kept = data.draw(st.integers(0, len(rows)))
    later = CsvTable(path)
    assert later.state() == states[-1]
    later.cut(**states[kept])
    assert (path.read_bytes() if path.exists() else b"") == contents[kept]
    for row in rows[kept:]:
        later.append(row)
    assert path.read_bytes() == contents[-1]


def test_many_rows_at_a_time_are_cut_too(tmp_path: Path) -> None:
    table = CsvTable(tmp_path / "t.csv")
    table.append_all([{"time": 0.1, "job": 1}, {"time": 1 / 3, "job": None}])
    state = table.state()
    table.append_all([{"time": 2.0, "job": 7}])
    CsvTable(table.path).cut(**state)
    assert table.path.read_text() == "time,job\n0.1,1\n0.3333333333333333,\n"
    again = CsvTable(table.path)
    again.append_all([{"time": 3.0, "job": 8}])
    assert table.path.read_text().splitlines()[-2:] == ["0.3333333333333333,", "3.0,8"]


@pytest.mark.parametrize("torn", ["2,0", '2,"half a te', "2"])
def test_a_last_row_that_was_cut_short_is_dropped(tmp_path: Path, torn: str) -> None:
    table = CsvTable(tmp_path / "t.csv")
    table.append({"a": 1, "b": "x", "c": 2})
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
