"""A report as a whole: sections with tables, notes and pictures, and what is not in it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from federation.runs.participation import all_answered, participation_line
from rarefl.report.drawing import Picture
from rarefl.report.label_pictures import label_pictures
from rarefl.report.printed import PrintedTable
from rarefl.report.reading import read
from rarefl.report.runs import Findings
from rarefl.report.section_tables import section_tables
from rarefl.report.sections import Section, sections
from rarefl.report.training_pictures import training_pictures


@dataclass(frozen=True, eq=False)
class Part:
    """What a report says of one section; ``results`` are its runs as a results file holds them."""

    title: str
    slug: str
    results: pd.DataFrame
    summary: str
    protocol: dict[str, Any]
    notes: tuple[str, ...]
    tables: tuple[PrintedTable, ...]
    pictures: tuple[Picture, ...]


@dataclass(frozen=True, eq=False)
class Report:
    """Everything that is written.

    Attributes
    ----------
    left_out
        Runs and folders that are not in any table, and why.
    warnings
        What was wrong with tables that were read.
    """

    parts: tuple[Part, ...]
    left_out: dict[str, str]
    warnings: tuple[str, ...]


def build(paths: Sequence[Path]) -> Report:
    """Return the report of runs and results files.

    Raises
    ------
    ReportError
        See :func:`rarefl.report.reading.read`.
    """
    findings = read(paths)
    parts = tuple(_part(section, findings) for section in sections(findings))
    folders = sum(run.folder is not None for run in findings.runs)
    missing = [
        f"{len(names)} of {folders} runs have no {table}, such as {names[0]}; "
        "the pictures drawn from it lack them"
        for table, names in findings.missing.items()
    ]
    return Report(parts, findings.left_out, (*findings.warnings, *missing))


def _part(section: Section, findings: Findings) -> Part:
    tables, notes = section_tables(section)
    pictures = (label_pictures if section.app == "fairfal" else training_pictures)(section, findings)
    seeds = sorted({run.seed for _, run in section.runs})
    told = (
        f"Runs: {len(section.runs)}. Methods: {'; '.join(section.methods)}. "
        f"Seeds: {', '.join(map(str, seeds))}."
    )
    return Part(
        title=section.title,
        slug=section.slug,
        results=section.results,
        summary=told,
        protocol=section.protocol,
        notes=(*notes, *participation_notes(section)),
        tables=tuple(tables),
        pictures=tuple(pictures),
    )


def participation_notes(section: Section) -> list[str]:
    """Return a note on each run in which a client did not answer a query, and one on all others together."""
    told = [
        (f"{method}, seed {run.seed}", run.summary["participation"])
        for method, run in section.runs
        if run.summary.get("participation")
    ]
    notes = [f"{name}: {participation_line(each)}." for name, each in told if not all_answered(each)]
    if others := len(told) - len(notes):
        runs = f"{others} of {len(told)} runs" if notes else "all runs that tell of it"
        notes.append(f"In {runs} every client answered every query.")
    return notes
