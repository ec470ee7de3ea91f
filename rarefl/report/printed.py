"""A table as it is printed, and its text in Markdown and LaTeX."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import pandas as pd

_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "±": r"$\pm$",
    "−": "$-$",
    "–": "--",
}


@dataclass(frozen=True)
class Cell:
    """One cell; ``bold`` marks the best of its row."""

    text: str
    bold: bool = False


@dataclass(frozen=True, eq=False)
class PrintedTable:
    """A table for readers.

    Attributes
    ----------
    slug
        For file names and references.
    caption
        What it shows, whole sentences.
    headings, rows
        One heading a column.
    labels
        Number of columns, from the left, that hold words; the others hold numbers.
    data
        The unrounded numbers behind it, for CSV.
    """

    slug: str
    caption: str
    headings: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    labels: int
    data: pd.DataFrame = field(repr=False)


def markdown_text(text: str) -> str:
    """Return a text without any sign that Markdown or HTML would take for its own."""
    escaped = re.sub(r"([\\`*_\[\]|])", r"\\\1", " ".join(text.split()))
    return escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def markdown(table: PrintedTable) -> str:
    """Return the table in Markdown, without its caption."""
    rule = ["---"] * table.labels + ["---:"] * (len(table.headings) - table.labels)
    lines = [[markdown_text(heading) for heading in table.headings], rule]
    lines += [[_markdown_cell(cell) for cell in row] for row in table.rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _markdown_cell(cell: Cell) -> str:
    return f"**{markdown_text(cell.text)}**" if cell.bold else markdown_text(cell.text)


def latex_text(text: str) -> str:
    """Return a text with LaTeX's special signs escaped."""
    return "".join(_LATEX.get(sign, sign) for sign in text)


def latex(table: PrintedTable) -> str:
    r"""Return the table in LaTeX; it needs ``\usepackage{booktabs}``."""
    columns = "l" * table.labels + "r" * (len(table.headings) - table.labels)
    lines = [
        r"% needs \usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{latex_text(table.caption)}}}",
        rf"\label{{tab:{table.slug}}}",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        _latex_row([latex_text(heading) for heading in table.headings]),
        r"\midrule",
        *(_latex_row([_latex_cell(cell) for cell in row]) for row in table.rows),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _latex_cell(cell: Cell) -> str:
    return rf"\textbf{{{latex_text(cell.text)}}}" if cell.bold else latex_text(cell.text)
