"""Budgets and the number of label rounds."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets.budget import budget_per_client, label_rounds, most_label_rounds
from datasets.errors import PartitionError
from datasets.partitions.shares import equal_sizes

TOTALS = {"fashion-mnist": 20428, "cifar10": 17023, "cifar100": 15907, "octmnist": 97477, "dermamnist": 7007}


def test_budgets_worked_out_by_hand(cases: dict[str, Any]) -> None:
    expected = cases["arithmetic"]["budget_per_client_5_percent_10_clients"]
    assert {name: budget_per_client(0.05, total, 10) for name, total in TOTALS.items()} == expected


@pytest.mark.parametrize(("total", "budget"), [(60_000, 300), (50_000, 250)])
def test_budgets_of_balanced_data_sets(total: int, budget: int) -> None:
    assert budget_per_client(0.05, total, 10) == budget


@pytest.mark.parametrize(("total", "hundreds"), [(1050, 10), (1150, 12), (1250, 12), (1051, 11), (1249, 12)])
def test_totals_are_rounded_to_hundreds_half_to_even(total: int, hundreds: int) -> None:
    assert budget_per_client(1.0, total, 1) == 100 * hundreds


def test_small_totals_are_not_rounded() -> None:
    assert budget_per_client(0.05, 999, 10) == 4
    assert budget_per_client(0.05, 49, 10) == 1
    assert budget_per_client(0.1, 493, 5) == 9


def test_ratios_are_decimal_numbers() -> None:
    assert budget_per_client(0.4, 20_400, 10) == 816
    assert budget_per_client(0.07, 10_000, 1) == 700


@given(st.integers(1, 99), st.integers(1000, 200_000), st.integers(1, 10))
def test_budget_is_the_floor_of_the_exact_quotient(percent: int, total: int, clients: int) -> None:
    budget = budget_per_client(percent / 100, total, clients)
    exact = Fraction(percent, 100) * round(Fraction(total, 100)) * 100 / clients
    assert budget <= exact < budget + 1


@pytest.mark.parametrize(
    ("ratio", "last", "rounds"),
    [
        (0.05, 0.45, 9),
        (0.1, 0.5, 5),
        (0.1, 0.3, 3),
        (0.05, 0.15, 3),
        (0.05, 0.149, 2),
        (0.2, 0.2, 1),
        (0.3, 1.0, 3),
    ],
)
def test_most_label_rounds(ratio: float, last: float, rounds: int) -> None:
    assert most_label_rounds(ratio, last) == rounds


@given(st.integers(1, 1000), st.integers(1, 1000))
def test_label_rounds_end_at_the_last_ratio(ratio: int, times: int) -> None:
    if ratio * times <= 1000:
        assert most_label_rounds(ratio / 1000, ratio * times / 1000) == times


@pytest.mark.parametrize("ratio", [0.0, -0.1, 1.01, float("nan")])
def test_ratio_out_of_range(ratio: float) -> None:
    with pytest.raises(PartitionError, match=r"label-ratio is .* above 0 and at most 1"):
        budget_per_client(ratio, 5000, 10)


def test_last_ratio_below_the_first() -> None:
    with pytest.raises(PartitionError, match=r"last-label-ratio 0\.05 is below label-ratio 0\.1"):
        most_label_rounds(0.1, 0.05)


def test_budget_of_nothing_names_the_ratio_that_gives_one_label() -> None:
    with pytest.raises(PartitionError, match=r"label-ratio 0\.0001 of 20428 .* 10 clients.*0\.00049"):
        budget_per_client(0.0001, 20_428, 10)


@pytest.mark.parametrize("total", TOTALS.values())
def test_published_protocols_keep_their_nine_rounds(total: int) -> None:
    assert label_rounds(0.05, 0.45, equal_sizes(total, 10).tolist()) == 9


@pytest.mark.parametrize(
    ("ratio", "last", "sizes", "rounds"),
    [
        # 580 images at 50 clients: 1 label each is 8.6 %, five rounds 43.1 %, six 51.7 %, nine 77.6 %.
        (0.05, 0.45, [12] * 30 + [11] * 20, 5),
        (0.05, 0.52, [12] * 30 + [11] * 20, 6),
        # The first round takes place although its one label each is 20 % already.
        (0.05, 0.1, [5] * 10, 1),
        # After round 1 the 30 clients of one image have nothing left: 31, 32, ... labels, and 70 % are 35.
        (0.05, 0.7, [1] * 30 + [20], 5),
        # 2,099 images count as 2,100: 9 * 5 * 21 = 945 labels are 45 % of these.
        (0.05, 0.45, [420] * 4 + [419], 9),
    ],
)
def test_label_rounds_end_before_the_last_ratio_is_passed(
    ratio: float, last: float, sizes: list[int], rounds: int
) -> None:
    assert label_rounds(ratio, last, sizes) == rounds


@given(
    st.lists(st.integers(1, 400), min_size=1, max_size=60),
    st.integers(1, 1000),
    st.integers(1, 1000),
)
def test_the_last_ratio_is_never_passed_but_by_the_first_round(
    sizes: list[int], first: int, last: int
) -> None:
    ratio, end, total = min(first, last) / 1000, max(first, last) / 1000, sum(sizes)
    try:
        budget = budget_per_client(ratio, total, len(sizes))
    except PartitionError:
        assert total >= 1000
        return
    rounds = label_rounds(ratio, end, sizes)

    def labelled(rounds: int) -> int:
        return sum(min(rounds * budget, size) for size in sizes)

    # From 1,000 images on the ratios count hundreds: up to 50 images more than there are.
    allowed = Fraction(max(first, last), 1000) * (total if total < 1000 else total + 50)
    assert labelled(rounds) <= allowed or (rounds, budget) == (1, 1)
    most = most_label_rounds(ratio, end)
    assert rounds <= most
    if total >= 1000 or ratio * total >= len(sizes):  # the budget is not forced up to 1
        assert rounds == most
