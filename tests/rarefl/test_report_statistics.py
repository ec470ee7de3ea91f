"""Tests and effects against numbers worked out by hand."""

import numpy as np
import pandas as pd
import pytest

from rarefl.report.statistics import (
    compare,
    hodges_lehmann,
    holm,
    least_p,
    signed_rank,
    warnings,
    win_tie_loss,
)


def test_hodges_lehmann_is_the_median_of_walsh_averages() -> None:
    # 1, 2, 6: averages 1, 1.5, 3.5, 2, 4, 6; sorted 1, 1.5, 2, 3.5, 4, 6; median 2.75
    assert hodges_lehmann([1, 2, 6]) == 2.75
    assert hodges_lehmann([4]) == 4
    assert np.isnan(hodges_lehmann([]))


def test_signed_rank_of_one_sign_reaches_the_least_p() -> None:
    for pairs in (2, 3, 5, 6):
        test = signed_rank(np.arange(1, pairs + 1))
        assert (test.pairs, test.statistic) == (pairs, 0)
        assert test.p == pytest.approx(least_p(pairs)) == pytest.approx(2 / 2**pairs)
    assert least_p(0) == 1


def test_signed_rank_with_one_loss() -> None:
    # 3, 2, -1: ranks of negative ones sum to 1. Sums up to 1: {} and {1}; 2 of 8 on either side: 0.5
    test = signed_rank([3, 2, -1])
    assert test.statistic == 1
    assert test.p == pytest.approx(0.5)


def test_signed_rank_with_ties_counts_every_sign() -> None:
    # 1, 1, 1, -1: each has rank 2.5. Negative sum 2.5 or less: 0 or 1 minus of 4, 5 of 16; doubled 10 / 16
    test = signed_rank([1, 1, 1, -1])
    assert test.statistic == 2.5
    assert test.p == pytest.approx(10 / 16)


def test_signed_rank_leaves_out_zeros_and_rounding() -> None:
    assert signed_rank([0, 0]).p == 1
    assert signed_rank([0.0, 0.3 - 0.2 - 0.1, 1.0, 2.0]).pairs == 2
    # 0.3 - 0.2 and 0.2 - 0.1 differ by a rounding error and are a tie all the same.
    assert signed_rank([0.3 - 0.2, 0.2 - 0.1]).statistic == 0
    assert signed_rank([0.3 - 0.2, -(0.2 - 0.1)]).statistic == 1.5


def test_signed_rank_of_many_ties_is_approximate() -> None:
    # 20 equal sizes, 5 negative: W = 5 * 10.5, mean 105, deviation sqrt(20 * 10.5^2 / 4) = 23.5, z = -2.236
    assert signed_rank([1] * 15 + [-1] * 5).p == pytest.approx(0.02535, abs=1e-5)


def test_holm() -> None:
    # Sorted 0.01 * 3, 0.03 * 2, 0.04 * 1; the last may not be below the one before.
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_compare_pairs_by_seed() -> None:
    values = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [0.0, 0.0, np.nan], "c": [np.nan, np.nan, 5.0]})
    first, second, third = compare(values)
    assert (first.first, first.second, first.seeds, first.effect) == ("a", "b", 2, 1.5)
    assert first.test is not None
    assert first.test.p == 0.5
    assert first.p_holm == 0.5  # the only pair that is tested
    assert (second.first, second.second, second.seeds, second.effect, second.test) == (
        "a",
        "c",
        1,
        -2.0,
        None,
    )
    assert (third.seeds, third.test, third.p_holm) == (0, None, None)


def test_wins_ties_and_losses() -> None:
    values = pd.DataFrame({"a": [1.0, 2.0, 3.0, np.nan], "b": [0.0, 2.0, 4.0, 1.0]})
    assert win_tie_loss(values) == {("a", "b"): (1, 1, 1), ("b", "a"): (1, 1, 1)}
    assert win_tie_loss(values.assign(b=[9.0, 9.0, 9.0, 9.0]))["a", "b"] == (0, 0, 3)


@pytest.mark.parametrize(
    ("seeds", "methods", "said"),
    [
        (1, 2, "no test of significance"),
        (5, 2, "5 seeds the signed-rank test cannot reach 5 %: its least p is 0.0625"),
        (6, 2, None),
        (6, 3, "3 pairs of methods the corrected p cannot reach 5 %: its least value is 0.0938"),
        (7, 3, None),
    ],
)
def test_too_few_seeds_are_told(seeds: int, methods: int, said: str | None) -> None:
    values = pd.DataFrame({f"m{i}": np.arange(1.0, seeds + 1) * i for i in range(methods)})
    told = warnings(compare(values))
    assert (said in told[0]) if said else told == []
