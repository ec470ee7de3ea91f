"""What a report is made of: finished runs with their tables, and what was wrong with others."""

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from pandas.api.types import is_numeric_dtype

from federation.errors import RareflError

App = Literal["fairfal", "fedraw"]
_TEXTS = ("site", "query_model", "kind", "reason")
APPS: tuple[App, ...] = ("fairfal", "fedraw")


class ReportError(RareflError):
    """There is nothing to report, or a file given for it cannot be read."""


@dataclass(frozen=True, eq=False)
class Run:
    """One finished run.

    Attributes
    ----------
    name
        Its folder; of a line in a results file the name there.
    config
        Run config, flat; of a results file the keys that the sweep varied.
    rows
        Columns as of ``results.csv``: a row a label round (fairfal) or one row (fedraw).
    summary
        Content of ``summary.json``; empty for a results file.
    folder
        None for a results file.
    source
        The results file, otherwise "".
    """

    name: str
    app: App
    seed: int
    config: dict[str, Any]
    rows: pd.DataFrame
    summary: dict[str, Any] = field(default_factory=dict)
    folder: Path | None = None
    source: str = ""


@dataclass
class Findings:
    """Everything that was found.

    Attributes
    ----------
    runs
        Finished runs, folders in the order of their names.
    left_out
        Folders that are not in the report, and why.
    warnings
        What was wrong with tables that are in it.
    missing
        By the name of a table, the runs that lack it.
    """

    runs: list[Run] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    missing: dict[str, list[str]] = field(default_factory=dict)

    def table(self, run: Run, name: str, columns: Sequence[str], others: bool = False) -> pd.DataFrame | None:
        """Return a table of a run's folder; None, and a note of it, when there is none that can be read.

        Parameters
        ----------
        name
            File name, such as ``queries.csv``.
        columns
            Columns that it must have.
        others
            Whether other columns are read as well.
        """
        if run.folder is None:
            return None
        path = run.folder / name
        if not path.is_file():
            self.missing.setdefault(name, []).append(run.name)
            return None
        try:
            frame = pd.read_csv(
                whole_lines(path, self.warnings), usecols=None if others else list(columns), low_memory=False
            )
            if lacking := [column for column in columns if column not in frame]:
                raise ValueError(f"it has no column {', '.join(lacking)}")
            if wrong := [
                column for column in frame if column not in _TEXTS and not is_numeric_dtype(frame[column])
            ]:
                raise ValueError(f"column {wrong[0]} has a cell that is no number")
        except (OSError, ValueError) as error:
            self.warnings.append(f"{path} cannot be used ({one_line(error)}); its pictures lack this run")
            return None
        return frame


def whole_lines(path: Path, warnings: list[str]) -> Path | io.BytesIO:
    """Return the file, or its text without the last line, and a warning, when that one was cut off."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 1, 0))
        if size == 0 or file.read(1) == b"\n":
            return path
    text = path.read_bytes()
    warnings.append(f"{path}: the last line has no end, so it was left out; the file was cut off")
    return io.BytesIO(text[: text.rfind(b"\n") + 1])


def one_line(value: object) -> str:
    """Return a text as one line that is not too long."""
    return " ".join(str(value).split())[:300]
