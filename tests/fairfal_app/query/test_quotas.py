import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairfal_app.query.quotas import class_quotas

sizes_and_budget = st.tuples(st.lists(st.integers(0, 30), min_size=1, max_size=12), st.integers(1, 200))


def dealt_one_by_one(sizes: list[int], budget: int) -> list[int]:
    """The rule by plain loops: one unit at a time."""
    classes, budget = len(sizes), min(budget, sum(sizes))
    order = sorted(range(classes), key=lambda c: (-sizes[c], c))
    quotas = [0] * classes
    for _ in range(budget // classes):
        for c in range(classes):
            quotas[c] += 1
    for c in order[: budget % classes]:
        quotas[c] += 1
    excess = 0
    for c in range(classes):
        while quotas[c] > sizes[c]:
            quotas[c] -= 1
            excess += 1
    turn = 0
    while excess:
        c = order[turn % classes]
        if quotas[c] < sizes[c]:
            quotas[c] += 1
            excess -= 1
        turn += 1
    return quotas


def test_hand_worked_quotas(cases):
    for case in cases["quotas"]["cases"]:
        quotas = class_quotas(np.array(case["bucket_sizes"]), case["budget"])
        assert quotas.tolist() == case["quotas"]


@given(sizes_and_budget)
def test_quotas_equal_dealing_one_by_one(case):
    sizes, budget = case
    assert class_quotas(np.array(sizes), budget).tolist() == dealt_one_by_one(sizes, budget)


@given(sizes_and_budget)
def test_quotas_spend_the_budget_and_fit_the_buckets(case):
    sizes, budget = np.array(case[0]), case[1]
    quotas = class_quotas(sizes, budget)
    assert quotas.sum() == min(budget, sizes.sum())
    assert (quotas >= 0).all()
    assert (quotas <= sizes).all()


@pytest.mark.parametrize(
    ("sizes", "budget", "quotas", "why"),
    [
        ([3, 9, 9, 2], 17, [3, 7, 5, 2], "not max-min fair, which would give 6 and 6"),
        ([10, 10, 0, 0], 8, [4, 4, 0, 0], "classes without a bucket have a share, too"),
        ([5, 6, 7], 4, [1, 1, 2], "what is left over goes to the largest bucket"),
        ([7, 7, 7], 5, [2, 2, 1], "equal buckets: the lower class first"),
        ([1, 4, 0, 2, 3], 3, [0, 1, 0, 1, 1], "fewer units than classes: the largest buckets"),
        ([0, 2, 0, 0, 0], 2, [0, 2, 0, 0, 0], "an empty bucket's unit comes back"),
        ([4], 3, [3], "one class"),
        ([2, 1], 9, [2, 1], "a budget above the pool"),
        ([0, 0], 5, [0, 0], "nothing to take"),
    ],
)
def test_rules(sizes, budget, quotas, why):
    assert class_quotas(np.array(sizes), budget).tolist() == quotas, why
