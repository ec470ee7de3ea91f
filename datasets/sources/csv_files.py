"""Tables that come with data sets: CSV files as portals, spreadsheets and archives write them."""

import io
import os
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from datasets.errors import DatasetFormatError

_SEPARATORS = ",;\t"


def read_table(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    """Return a table as text, stripped of spaces, with the line of each row in the file as its index.

    Columns are parted by commas, semicolons or tabs, whichever the first line has most of; a byte order mark
    is allowed.

    Parameters
    ----------
    columns
        Names that must be among the columns; letter case counts.

    Raises
    ------
    DatasetFormatError
        If it is no UTF-8 text or no table, or lacks a column; the message tells what is there.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetFormatError(
            f"{path}: cannot be read: {error}. Save it as a CSV file in UTF-8."
        ) from error
    first = text.split("\n", 1)[0]
    separator = max(_SEPARATORS, key=first.count)
    try:
        table = pd.read_csv(
            io.StringIO(text),
            sep=separator,
            dtype=str,
            keep_default_na=False,
            skip_blank_lines=False,
            index_col=False,
        )
    except (ValueError, pd.errors.ParserError) as error:
        reason = " ".join(str(error).split())
        raise DatasetFormatError(f"{path}: is no table: {reason}. Save it as a CSV file.") from error
    table = table.fillna("").rename(columns=str.strip).map(str.strip)
    table.index += 2  # the header is line 1
    table = table[(table != "").any(axis=1)]
    if missing := [name for name in columns if name not in table.columns]:
        raise DatasetFormatError(
            f"{path}: lacks the column {', '.join(missing)}; its columns are {', '.join(table.columns)}. "
            f"The first line names the columns, among them {', '.join(columns)}."
        )
    return table


def require_distinct(path: Path, table: pd.DataFrame, column: str) -> None:
    """Raise DatasetFormatError if a text stands twice in a column, naming both lines."""
    again = table[column].duplicated()
    if again.any():
        line, text = table.index[again][0], table[column][again].iloc[0]
        before = table.index[table[column] == text][0]
        raise DatasetFormatError(
            f"{path}, line {line}: {column} {text!r} stands in line {before} already. Remove one of the two."
        )


def find_table(root: Path, *names: str) -> Path | None:
    """Return the first of these files that lies in a folder, in any letter case; None without such a folder.

    Raises
    ------
    DatasetFormatError
        If the folder cannot be read.
    """
    if not os.path.isdir(root):  # pathlib raises where a folder above may not be entered
        return None
    try:
        files = {path.name.lower(): path for path in sorted(root.iterdir()) if os.path.isfile(path)}
    except OSError as error:
        raise DatasetFormatError(f"{root}: cannot be read: {error.strerror}. Allow reading it.") from error
    return next((files[name.lower()] for name in names if name.lower() in files), None)
