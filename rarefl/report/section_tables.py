"""Tables of a section: means over seeds of every method, tests of each pair, wins and losses."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from rarefl.columns import SECONDS, Column, last_columns
from rarefl.report.printed import Cell, PrintedTable
from rarefl.report.sections import Section
from rarefl.report.shown import area, areas, curves, label_round_columns, training_columns
from rarefl.report.statistics import Comparison, compare, warnings, win_tie_loss

NOTHING = "–"


def summarise(rows: pd.DataFrame, measures: Sequence[Column], by: Sequence[str] = ()) -> pd.DataFrame:
    """Return means over seeds.

    Parameters
    ----------
    rows
        A row a run (and place, such as a label round), with ``method`` and the measures' columns.
    by
        Columns of the places.

    Returns
    -------
    pandas.DataFrame
        A row a place, measure and method: ``mean`` and ``sd`` (sample, n - 1; NaN for one run) in the shown
        scale, and ``n``, the runs that have the measure. A measure that no run has is left out.
    """
    columns = [measure.name for measure in measures if rows[measure.name].notna().any()]
    headings = {measure.name: measure.heading for measure in measures}
    scales = {measure.name: measure.scale for measure in measures}
    if not columns:
        return pd.DataFrame(columns=[*by, "measure", "method", "mean", "sd", "n"])
    long = rows.melt(id_vars=[*by, "method"], value_vars=columns, var_name="column")
    long["value"] = long["value"].astype("float64") * long["column"].map(scales)
    grouped = long.groupby([*by, "column", "method"], sort=False)["value"]
    found = grouped.agg(["mean", "std", "count"]).reset_index()
    found = found.rename(columns={"std": "sd", "count": "n"})
    found.insert(len(by), "measure", found.pop("column").map(headings))
    return found


def means_table(
    section: Section,
    slug: str,
    caption: str,
    found: pd.DataFrame,
    measures: Sequence[Column],
    by: str = "",
    places: Mapping[Any, str] | None = None,
) -> PrintedTable:
    """Return the table of :func:`summarise`: a row a place and measure, a column a method.

    ``by`` is the column of the places and ``places`` the text of each, in order. The best mean of a row is
    bold, and every mean that prints the same; none where all do.
    """
    seeds = section.seeds
    kinds = {measure.heading: measure for measure in measures}
    rows, best = [], pd.Series(False, index=found.index)
    for place, name in (places or {None: ""}).items():
        at = found[found[by] == place] if by else found
        shown = [kind for kind in kinds if (at["measure"] == kind).any()]
        for heading in shown:
            line = at[at["measure"] == heading].set_index("method")
            winners = _best(line["mean"].round(kinds[heading].decimals), kinds[heading].better)
            told = line.to_dict("index")
            cells = [Cell(heading)] + [
                Cell(_mean_text(told[method], kinds[heading], seeds[method]), method in winners)
                if method in told
                else Cell(NOTHING)
                for method in section.methods
            ]
            # A place is named in its first row only.
            rows.append(([Cell(name if heading == shown[0] else "")] if by else []) + cells)
            best |= found.index.isin(at[(at["measure"] == heading) & at["method"].isin(winners)].index)
    lead = ["labelled", "measure"] if by else ["measure"]
    rows.append([*([Cell("")] if by else []), Cell("seeds"), *(Cell(str(seeds[m])) for m in section.methods)])
    data = found.assign(best=best.astype(int))
    return PrintedTable(
        f"{section.slug}-{slug}",
        caption,
        (*lead, *section.methods),
        tuple(map(tuple, rows)),
        len(lead),
        data,
    )


def _best(means: pd.Series, better: int) -> set[str]:
    told = means.dropna()
    if not better or len(told) < 2:
        return set()
    top = told.max() if better > 0 else told.min()
    winners = told.index[told == top]
    return set() if len(winners) == len(told) else set(winners)


def _mean_text(line: Mapping[Any, Any], measure: Column, seeds: int) -> str:
    if not line["n"]:
        return NOTHING
    text = f"{line['mean']:.{measure.decimals}f}"
    if not np.isnan(line["sd"]):
        text += f" ± {line['sd']:.{measure.decimals}f}"
    return text if line["n"] == seeds else f"{text} (n = {line['n']:.0f})"


def _over(section: Section) -> str:
    counts = sorted(set(section.seeds.values()))
    if counts == [1]:
        return "One seed, so there is no standard deviation."
    number = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"Mean ± standard deviation over {number} seeds; the best mean of a row is bold."


def section_tables(section: Section) -> tuple[list[PrintedTable], list[str]]:
    """Return the tables of a section, and notes on what they cannot show."""
    return _label_rounds(section) if section.app == "fairfal" else _training(section)


def _label_rounds(section: Section) -> tuple[list[PrintedTable], list[str]]:
    rows = section.rows
    kinds = curves(rows)
    ratios = rows.groupby("label_round")["label_ratio"].mean()
    places = {label_round: f"{100 * ratio:.1f} %" for label_round, ratio in ratios.items()}
    shown = label_round_columns(rows)
    over = _over(section)
    tables = [
        means_table(
            section,
            "means",
            f"Test images after the last round of each label round, by labelled share of the pool. {over} "
            "Rare labels bought: their share among all labels bought so far.",
            summarise(rows, shown, ["label_round"]),
            shown,
            "label_round",
            places,
        )
    ]
    under = areas(section, kinds)
    shown = (*map(area, kinds), SECONDS)
    caption = f"Area under the learning curve over the label ratio, divided by its range. {over}"
    tables.append(means_table(section, "areas", caption, summarise(under, shown), shown))
    last = section.rows[section.rows["label_round"] == ratios.index.max()]
    tested = [(f"{kind.heading}, {places[ratios.index.max()]} labelled", kind, last) for kind in kinds]
    tested += [(area(kind).heading, kind, under) for kind in kinds]
    notes = _short_runs(section)
    pairs, told = _pairs(section, tested)
    return tables + pairs, notes + told


def _short_runs(section: Section) -> list[str]:
    rounds = section.rows.groupby(["method", "seed"])["label_round"].nunique()
    short = rounds[rounds < section.rows["label_round"].nunique()]
    return [
        f"{run['method']}, seed {run['seed']}: only {run['label_round']} label rounds; it is in no area "
        "and not in the later rounds."
        for run in short.reset_index().to_dict("records")
    ]


def _training(section: Section) -> tuple[list[PrintedTable], list[str]]:
    clock = section.protocol.get("clock.name")
    shown, note = training_columns(section.rows, None if clock is None else clock == "virtual")
    found = summarise(section.rows, shown)
    caption = f"Accuracies are means of the last five evaluations. {_over(section)} {note}"
    tables = [means_table(section, "means", caption, found, shown)]
    pairs, told = _pairs(section, [(kind.heading, kind, section.rows) for kind in last_columns()])
    return tables + pairs, told


def _pairs(
    section: Section, tested: Sequence[tuple[str, Column, pd.DataFrame]]
) -> tuple[list[PrintedTable], list[str]]:
    """Return the tests of each pair of methods and their wins and losses, for each measure."""
    if len(section.methods) < 2:
        return [], ["One method, so there is nothing to compare."]
    tests: list[tuple[str, Comparison]] = []
    wins: list[tuple[str, dict[tuple[str, str], tuple[int, int, int]]]] = []
    notes: dict[str, None] = {}
    for heading, measure, rows in tested:
        values = measure.scale * rows.pivot(index="seed", columns="method", values=measure.name)
        values = values.reindex(columns=list(section.methods))
        if values.notna().any(axis=None):
            compared = compare(values)
            tests += [(heading, pair) for pair in compared]
            notes |= dict.fromkeys(warnings(compared))
            wins.append((heading, win_tie_loss(values)))
    if not tests:
        return [], ["No measure to compare."]
    return [_tests_table(section, tests), _wins_table(section, wins)], list(notes)


def _tests_table(section: Section, tests: Sequence[tuple[str, Comparison]]) -> PrintedTable:
    rows, data = [], []
    for heading, pair in tests:
        test = pair.test
        rows.append(
            (
                Cell(heading),
                Cell(f"{pair.first} − {pair.second}"),
                Cell(str(pair.seeds)),
                Cell(f"{pair.effect:+.1f}".replace("-", "−") if pair.seeds else NOTHING),
                Cell(f"{test.statistic:g}" if test else NOTHING),
                Cell(f"{test.p:.3f}" if test else NOTHING),
                Cell(f"{pair.p_holm:.3f}" if pair.p_holm is not None else NOTHING),
            )
        )
        data.append(
            {
                "measure": heading,
                "first": pair.first,
                "second": pair.second,
                "seeds": pair.seeds,
                "hodges_lehmann": pair.effect,
                "statistic": test.statistic if test else None,
                "p": test.p if test else None,
                "p_holm": pair.p_holm,
            }
        )
    caption = (
        "Pairs of methods, seed by seed. Effect: Hodges-Lehmann estimate of the difference, in points of "
        "percent. p: Wilcoxon's signed-rank test, two-sided; Holm: corrected for the pairs of the measure."
    )
    headings = ("measure", "methods", "seeds", "effect", "W", "p", "p (Holm)")
    return PrintedTable(f"{section.slug}-tests", caption, headings, tuple(rows), 2, pd.DataFrame(data))


def _wins_table(
    section: Section, wins: Sequence[tuple[str, dict[tuple[str, str], tuple[int, int, int]]]]
) -> PrintedTable:
    rows, data = [], []
    for heading, counts in wins:
        for first in section.methods:
            cells = [
                Cell(NOTHING if first == second else "/".join(map(str, counts[first, second])))
                for second in section.methods
            ]
            rows.append((Cell(heading if first == section.methods[0] else ""), Cell(first), *cells))
        data += [
            {"measure": heading, "method": first, "against": second, "wins": w, "ties": t, "losses": lost}
            for (first, second), (w, t, lost) in counts.items()
        ]
    caption = "On how many seeds the method of the row is better / equal / worse than that of the column."
    headings = ("measure", "method", *(f"against {method}" for method in section.methods))
    return PrintedTable(f"{section.slug}-wins", caption, headings, tuple(rows), 2, pd.DataFrame(data))
