"""Paired comparison of methods: signed-rank test, size of the effect, correction for several pairs.

Runs of two methods with the same seed share data and initial weights, so they are compared seed by seed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

LEVEL = 0.05
# Differences of shares carry rounding errors of about 1e-16, which would break ties.
_DECIMALS = 12
_MOST_EXACT = 50
_MOST_PERMUTED = 13

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SignedRank:
    """Wilcoxon's signed-rank test, two-sided.

    Attributes
    ----------
    pairs
        Number of differences other than zero: zeros tell nothing and are left out, as by Wilcoxon (1945).
    statistic
        The smaller one of the sums of ranks of the positive and of the negative differences.
    p
        1 where every difference is zero.
    """

    pairs: int
    statistic: float
    p: float


@dataclass(frozen=True)
class Comparison:
    """Two methods compared seed by seed.

    Attributes
    ----------
    seeds
        Seeds that both have.
    effect
        Hodges-Lehmann estimate of ``first - second``.
    test
        None with fewer than two seeds.
    p_holm
        The test's p, corrected for all pairs of methods; None without a test.
    """

    first: str
    second: str
    seeds: int
    effect: float
    test: SignedRank | None
    p_holm: float | None


def hodges_lehmann(differences: npt.ArrayLike) -> float:
    """Return the median of the Walsh averages ``(d_i + d_j) / 2``, ``i <= j``; nan without differences.

    It is the shift that fits the signed-rank test (Hodges and Lehmann 1963).
    """
    values = np.asarray(differences, dtype=np.float64)
    if not values.size:
        return float("nan")
    first, second = np.triu_indices(len(values))
    return float(np.median((values[first] + values[second]) / 2))


def least_p(pairs: int) -> float:
    """Return the least two-sided p that so many differences can give: all of them have one sign."""
    return min(1.0, 2.0 ** (1 - pairs))


def signed_rank(differences: npt.ArrayLike) -> SignedRank:
    """Return Wilcoxon's signed-rank test of differences (N,).

    The p is exact: by the distribution of the statistic without ties, by all 2^N signs with ties as long as
    N <= 13. Only for larger samples it is approximate (normal).
    """
    values = np.round(np.asarray(differences, dtype=np.float64), _DECIMALS)
    values = values[values != 0]
    if not values.size:
        return SignedRank(0, 0.0, 1.0)
    tied = len(np.unique(np.abs(values))) < len(values)
    if not tied and len(values) <= _MOST_EXACT:
        result = stats.wilcoxon(values, method="exact")
    elif len(values) <= _MOST_PERMUTED:
        every_sign = stats.PermutationMethod(n_resamples=2**_MOST_PERMUTED)
        result = stats.wilcoxon(values, method=every_sign)
    else:
        result = stats.wilcoxon(values, method="approx")
    return SignedRank(len(values), float(result.statistic), min(1.0, float(result.pvalue)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p values corrected for their number (Holm 1979), in the order given."""
    order = np.argsort(p_values, kind="stable")
    steps = np.asarray(p_values, dtype=np.float64)[order] * np.arange(len(p_values), 0, -1)
    corrected = np.empty(len(p_values))
    corrected[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return corrected.tolist()


def compare(values: pd.DataFrame) -> list[Comparison]:
    """Return every pair of methods compared.

    Parameters
    ----------
    values
        A row a seed, a column a method; NaN where there is no such run.
    """
    found = []
    for first, second in combinations(values.columns, 2):
        differences = (values[first] - values[second]).dropna().to_numpy(dtype=np.float64)
        test = signed_rank(differences) if len(differences) > 1 else None
        effect = hodges_lehmann(differences)
        found.append(Comparison(str(first), str(second), len(differences), effect, test, None))
    corrected = iter(holm([pair.test.p for pair in found if pair.test]))
    return [
        Comparison(pair.first, pair.second, pair.seeds, pair.effect, pair.test, next(corrected))
        if pair.test
        else pair
        for pair in found
    ]


def win_tie_loss(values: pd.DataFrame) -> dict[tuple[str, str], tuple[int, int, int]]:
    """Return, for each ordered pair of methods, on how many seeds the first is better, equal, worse.

    ``values`` as for :func:`compare`; larger is better.
    """
    counts = {}
    for first in values.columns:
        for second in values.columns.drop(first):
            signs = np.sign((values[first] - values[second]).dropna().round(_DECIMALS))
            counts[first, second] = (int((signs > 0).sum()), int((signs == 0).sum()), int((signs < 0).sum()))
    return counts


def warnings(comparisons: Sequence[Comparison]) -> list[str]:
    """Return in plain words what the tests cannot show with so few seeds; comparisons of one measure."""
    tested = [pair.seeds for pair in comparisons if pair.test]
    if not comparisons:
        return []
    if not tested:
        return ["No two methods share two seeds, so there is no test of significance."]
    fewest, several = min(tested), len(tested) > 1
    if least_p(fewest) > LEVEL:
        return [
            f"With {fewest} seeds the signed-rank test cannot reach 5 %: its least p is "
            f"{least_p(fewest):.3g}. It needs 6 seeds or more; read the effects, not the p values."
        ]
    if several and least_p(fewest) * len(tested) > LEVEL:
        return [
            f"With {fewest} seeds and {len(tested)} pairs of methods the corrected p cannot reach 5 %: its "
            f"least value is {least_p(fewest) * len(tested):.3g}."
        ]
    return []
