"""A table of a run, which grows by rows and can be cut back to what it was."""

import csv
import io
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd

from federation.errors import RunFolderError
from federation.runs.files import append_text, replace_file


class CsvTable:
    """A CSV file whose rows are on the disk when a call returns.

    The columns keep the order in which they first came; a row may lack some.

    Attributes
    ----------
    columns
        Names of the columns.
    rows
        Number of rows.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        header, rows = _read(path)
        self.columns = header
        self.rows = len(rows)

    def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows in one go; each may have new columns, or lack some.

        Numbers are written so that they can be read back exactly; None and NaN are empty cells.
        """
        new = list(dict.fromkeys(column for row in rows for column in row if column not in self.columns))
        lines = [[row.get(column) for column in (*self.columns, *new)] for row in rows]
        if new:
            # Cells stay the text that they are: a whole number in a column with gaps must not become 3.0.
            _, earlier = _read(self.path)
            self.columns = self.columns + new
            self._replace([*(cells + [""] * len(new) for cells in earlier), *lines])
        elif lines:
            append_text(self.path, _text(lines))
        self.rows += len(lines)

    def read(self) -> list[dict[str, Any]]:
        """Return all rows: empty cells are NaN, ``site`` is text, other cells numbers where they can be."""
        if not self.rows:
            return []
        frame = pd.read_csv(
            self.path, dtype={"site": str}, keep_default_na=False, na_values=[""], skip_blank_lines=False
        )
        return [{str(column): value for column, value in row.items()} for row in frame.to_dict("records")]

    def state(self) -> dict[str, Any]:
        """Return what ``cut`` needs, for JSON."""
        return {"columns": self.columns, "rows": self.rows}

    def cut(self, columns: Sequence[str], rows: int) -> None:
        """Go back to the first rows and to the columns that there were then; with no row the file goes.

        Raises
        ------
        RunFolderError
            The file has fewer rows, or lacks one of the columns.
        """
        header, kept = _read(self.path, rows)
        missing = [column for column in columns if column not in header]
        if len(kept) < rows or missing:
            found = f"lacks the column {missing[0]}" if missing else f"has {len(kept)} rows"
            raise RunFolderError(
                f"{self.path} {found}, and the checkpoint was made when it had {rows} rows with "
                f"{', '.join(columns)}: the file was changed since. Put the file of the run back, or start "
                "a new run"
            )
        self.columns, self.rows = list(columns), rows
        if not rows:
            self.path.unlink(missing_ok=True)
            return
        places = [header.index(column) for column in columns]
        self._replace([[row[place] for place in places] for row in kept])

    def _replace(self, rows: Sequence[Sequence[Any]]) -> None:
        text = _text([self.columns, *rows])
        replace_file(self.path, lambda path: path.write_text(text, encoding="utf-8", newline=""))


def _text(rows: Sequence[Sequence[Any]]) -> str:
    """Return cells as lines of CSV."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    # NaN is the one value that differs from itself.
    writer.writerows([["" if cell is None or cell != cell else cell for cell in row] for row in rows])
    return file.getvalue()


def _read(path: Path, rows: int | None = None) -> tuple[list[str], list[list[str]]]:
    """Return the header and the first rows; a last row that was cut short by a crash is left out."""
    if not path.exists():
        return [], []
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.reader(file)
        header = next(reader, [])
        return header, [row for row in islice(reader, rows) if len(row) == len(header)]
