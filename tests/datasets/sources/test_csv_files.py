"""Tables as portals, spreadsheets and archives write them."""

from pathlib import Path

import pytest

from datasets.errors import DatasetFormatError
from datasets.sources.csv_files import find_table, read_table, require_distinct


def write(folder: Path, text: str, encoding: str = "utf-8") -> Path:
    path = folder / "table.csv"
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_separators_line_ends_and_marks(tmp_path: Path, separator: str, end: str, encoding: str) -> None:
    lines = [["image", "dx"], ['"a 1"', " nv "], ["b", "NA"]]
    text = end.join(separator.join(line) for line in lines)
    table = read_table(write(tmp_path, text, encoding), ("image", "dx"))
    assert table.to_numpy().tolist() == [["a 1", "nv"], ["b", "NA"]]


def test_lines_are_those_of_the_file(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, "a,b\n\n1,2\n\n3\n"), ("a", "b"))
    assert table.to_dict("index") == {3: {"a": "1", "b": "2"}, 5: {"a": "3", "b": ""}}


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("x,y\n1,2\n", ["lacks the column a, b", "its columns are x, y"]),
        ("a,B\n1,2\n", ["lacks the column b", "its columns are a, B"]),
        ("a,b\n1,2,3,4\n1,2\n1,2,3,4,5,6\n", ["is no table", "line 4"]),
        ("", ["is no table"]),
    ],
)
def test_what_is_no_such_table(tmp_path: Path, content: str, parts: list[str]) -> None:
    with pytest.raises(DatasetFormatError) as failure:
        read_table(write(tmp_path, content), ("a", "b"))
    for part in [f"{tmp_path / 'table.csv'}: ", *parts]:
        assert part in str(failure.value)


def test_other_encodings(tmp_path: Path) -> None:
    with pytest.raises(DatasetFormatError, match=r"table\.csv: cannot be read: .*UTF-8"):
        read_table(write(tmp_path, "a,b\nä,1\n", "latin-1"), ("a", "b"))


def test_duplicates_name_both_lines(tmp_path: Path) -> None:
    path = write(tmp_path, "a\nx\ny\nx\n")
    with pytest.raises(DatasetFormatError, match=r"line 4: a 'x' stands in line 2 already"):
        require_distinct(path, read_table(path, ("a",)), "a")


def test_find_table(tmp_path: Path) -> None:
    path = write(tmp_path, "a\n")
    assert find_table(tmp_path, "other.csv", "Table.CSV") == path
    assert find_table(tmp_path, "other.csv") is None


def test_a_folder_that_cannot_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_table(tmp_path / "none", "table.csv") is None
    assert find_table(tmp_path / ("a" * 5000), "table.csv") is None

    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(DatasetFormatError, match=f"{tmp_path}: cannot be read: Permission denied"):
        find_table(tmp_path, "table.csv")
