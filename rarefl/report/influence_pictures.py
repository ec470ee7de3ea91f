"""Pictures of who took part and who counted in trainings, and how stale updates were."""

import pandas as pd
from matplotlib.ticker import MaxNLocator

from federation.runs.run_folder import EVENTS, INFLUENCE
from fedraw_app.influence import RARE_GROUP
from rarefl.report.drawing import Picture, legend_below, panels
from rarefl.report.runs import Findings
from rarefl.report.sections import Section, gather

_SITE_COLUMNS = ("site", "rare", "share_of_updates", "share_of_weight")
_GROUPS = ((0, "other sites", "#0072B2", "o"), (1, "sites with rare labels", "#D55E00", "^"))
_LABEL_ROUND = "label_round"


def influence_pictures(section: Section, findings: Findings) -> list[Picture]:
    """Return the pictures of influence and of staleness, as far as runs have their tables."""
    influence = gather(section, lambda run: findings.table(run, INFLUENCE, _SITE_COLUMNS, others=True))
    events = gather(section, lambda run: findings.table(run, EVENTS, ["kind", "staleness"]))
    pictures = [] if influence is None else [_biases(section, influence)]
    return pictures if events is None else [*pictures, _staleness(section, events)]


def _biases(section: Section, influence: pd.DataFrame) -> Picture:
    sites = influence[influence["site"] != RARE_GROUP]
    of = "."
    if _LABEL_ROUND in sites:
        sites = sites[sites[_LABEL_ROUND] == sites[_LABEL_ROUND].max()]
        of = ", in the training of the last label round."
    methods = [method for method in section.methods if (sites["method"] == method).any()]
    figure, grid = panels(methods)
    most = 105 * sites[["share_of_updates", "share_of_weight"]].to_numpy().max()
    for axes, method in zip(grid, methods, strict=True):
        of_method = sites[sites["method"] == method]
        for rare, name, colour, marker in _GROUPS:
            group = 100 * of_method.loc[of_method["rare"] == rare, ["share_of_updates", "share_of_weight"]]
            updates, weight = group.to_numpy().T
            axes.scatter(updates, weight, color=colour, marker=marker, alpha=0.7, s=24, label=name)
        axes.plot([0, most], [0, most], color="grey", linestyle="--", linewidth=1)
        axes.set_xlabel("share of the updates in %")
        axes.set_ylabel("share of the weight in %")
    legend_below(figure, grid[0])
    caption = (
        f"Participation against influence: a point a site and seed{of} On the dashed line a site counts as "
        "much as it takes part."
    )
    return Picture(f"{section.slug}-influence", caption, figure)


def _staleness(section: Section, events: pd.DataFrame) -> Picture:
    stale = events.loc[events["kind"] == "aggregate", ["method", "staleness"]]
    methods = [method for method in section.methods if (stale["method"] == method).any()]
    figure, grid = panels(methods or ["no update"], height=2.6)
    for axes, method in zip(grid, methods, strict=False):
        shares = 100 * stale.loc[stale["method"] == method, "staleness"].value_counts(normalize=True)
        axes.bar(shares.index, shares, width=0.9, color="#0072B2")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("staleness in versions")
        axes.set_ylabel("aggregated updates in %")
    caption = "Staleness: versions published between the dispatch of an update and its arrival, all seeds."
    return Picture(f"{section.slug}-staleness", caption, figure)
