"""A report on the disk: Markdown, CSV, LaTeX, pictures, and one HTML page that needs nothing else."""

import base64
import io
from pathlib import Path

import matplotlib as mpl
from jinja2 import Environment, StrictUndefined

from rarefl.report.drawing import Picture
from rarefl.report.printed import latex, markdown, markdown_text
from rarefl.report.report import Part, Report
from rarefl.report.runs import ReportError

PAGE, TEXT = "report.html", "report.md"
_TEMPLATE = Path(__file__).parent / "page.html.jinja"


def write(report: Report, out: Path) -> None:
    """Write the report into a folder, which is made; files of an earlier report are replaced.

    Beside it lie the runs of each section as a results file, which a report takes again.

    Raises
    ------
    ReportError
        The folder cannot be written to.
    """
    try:
        for name in ("tables", "pictures"):
            (out / name).mkdir(parents=True, exist_ok=True)
        drawings = {}
        for part in report.parts:
            part.results.to_csv(out / f"{part.slug}.csv", index=False, lineterminator="\n")
            for table in part.tables:
                table.data.to_csv(out / "tables" / f"{table.slug}.csv", index=False, lineterminator="\n")
                (out / "tables" / f"{table.slug}.tex").write_text(latex(table), encoding="utf-8")
            for picture in part.pictures:
                drawings[picture.slug] = _draw(picture, out / "pictures")
        (out / TEXT).write_text(report_markdown(report), encoding="utf-8")
        (out / PAGE).write_text(page(report, drawings), encoding="utf-8")
    except OSError as error:
        raise ReportError(
            f"--out: cannot write to {out}: {error.strerror or error}; give another folder"
        ) from None


def _draw(picture: Picture, folder: Path) -> bytes:
    """Save the picture as PNG and SVG and return the latter; it has the same bytes in each call."""
    picture.figure.savefig(folder / f"{picture.slug}.png", format="png", dpi=150)
    # What the layout found holds for the second file as well.
    picture.figure.set_layout_engine("none")
    with mpl.rc_context({"svg.hashsalt": "rarefl"}), io.BytesIO() as file:
        picture.figure.savefig(file, format="svg", metadata={"Date": None})
        drawing = file.getvalue()
    (folder / f"{picture.slug}.svg").write_bytes(drawing)
    return drawing


def report_markdown(report: Report) -> str:
    """Return the whole report in Markdown; pictures are links to files beside it."""
    blocks = ["# Report"]
    for part in report.parts:
        blocks += _part_markdown(part)
    if report.warnings:
        blocks += ["## Warnings", *(f"* {markdown_text(warning)}" for warning in report.warnings)]
    if report.left_out:
        blocks += ["## Not in this report"]
        blocks += [
            f"* {markdown_text(name)}: {markdown_text(reason)}" for name, reason in report.left_out.items()
        ]
    return "\n\n".join(blocks) + "\n"


def _part_markdown(part: Part) -> list[str]:
    blocks = [f"## {markdown_text(part.title)}", markdown_text(part.summary)]
    blocks += [f"**Note.** {markdown_text(note)}" for note in part.notes]
    for table in part.tables:
        blocks += [markdown_text(table.caption), markdown(table)]
    blocks += [f"![{markdown_text(p.caption)}](pictures/{p.slug}.svg)" for p in part.pictures]
    if part.protocol:
        keys = ", ".join(f"{key} = {value}" for key, value in part.protocol.items())
        blocks.append(f"Protocol: {markdown_text(keys)}.")
    return blocks


def page(report: Report, drawings: dict[str, bytes]) -> str:
    """Return the page; ``drawings`` holds the SVG of each picture by its slug."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    encoded = {slug: base64.b64encode(drawing).decode("ascii") for slug, drawing in drawings.items()}
    return template.render(report=report, drawings=encoded) + "\n"
