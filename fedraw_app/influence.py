"""The table of influence: each site, and the sites with rare labels together."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from fedraw.run.influence import Influence

RARE_GROUP = "(rare sites)"

_MEASURES = (
    *("aggregated", "replaced_per_flush", "rare_share_of_clients", "rare_share_of_updates"),
    *("rare_share_of_weight", "participation_bias", "aggregation_bias"),
)


def influence_measures(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the result of a training tells of ``Influence.summary``; None where there is no number."""
    return {key: summary.get(key) for key in _MEASURES}


def influence_rows(
    influence: Influence, sites: Iterable[str], rare_sites: Collection[str]
) -> list[dict[str, Any]]:
    """Return a row a site, in the order of names, and one for the rare sites together.

    ``participation_bias`` is the share of the updates over the share of the clients, ``aggregation_bias`` the
    share of the weight over the share of the updates: 1 is even (FedRAW, arXiv 2609.07192). None where there
    is no such share.
    """
    names = sorted(sites)
    groups = [(site, [site]) for site in names] + [(RARE_GROUP, sorted(rare_sites))]
    updates, weight = influence.participations.total(), sum(influence.weights.values())
    rows = []
    for name, group in groups:
        participations = sum(influence.participations[site] for site in group)
        weights = sum(influence.weights.get(site, 0.0) for site in group)
        shares = (len(group) / len(names), participations / updates, weights / weight if weight else 0.0)
        rows.append(
            {
                "site": name,
                "rare": int(bool(group) and set(group) <= set(rare_sites)),
                "participations": participations,
                "weight": weights,
                "replaced": sum(influence.replaced[site] for site in group),
                "share_of_clients": shares[0],
                "share_of_updates": shares[1],
                "share_of_weight": shares[2],
                "participation_bias": shares[1] / shares[0] if shares[0] else None,
                "aggregation_bias": shares[2] / shares[1] if shares[1] else None,
            }
        )
    return rows
