"""Copies of images: contradictory, in both splits, and groups that they join."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from datasets.images.copies import content_numbers, contradictions, in_both_splits, kept_together


def test_equal_digests_have_equal_numbers() -> None:
    digests = np.array([[1, 2], [2, 1], [1, 2], [0, 0]], dtype=np.uint8)
    numbers = content_numbers(digests)
    assert numbers[0] == numbers[2]
    assert len(set(numbers.tolist())) == 3
    assert content_numbers(np.zeros((0, 16), dtype=np.uint8)).shape == (0,)


def test_contradictions_worked_out_by_hand() -> None:
    content = np.array([5, 7, 5, 5, 7, 9])
    assert contradictions(content, np.array([0, 1, 1, 0, 1, 2])) == {0: 2, 2: 0, 3: 2}
    assert contradictions(content, np.zeros(6, dtype=np.int64)) == {}


def test_training_images_in_the_test_split() -> None:
    content = np.array([5, 7, 5, 5, 7, 9])
    assert in_both_splits(content, np.array([0, 0, 1, 0, 0, 1], dtype=bool)) == {0: 2, 3: 2}


def test_groups_that_share_a_copy_become_one() -> None:
    # Groups {0, 1}, {2, 3}, {4}, {5}; images 1 and 2 are the same, and so are 4 and 5.
    joined = kept_together(np.array([0, 0, 1, 1, 2, 3]), np.array([0, 1, 1, 2, 3, 3]))
    assert joined is not None
    assert len(set(joined[:4].tolist())) == 1
    assert joined[4] == joined[5] != joined[0]


def test_without_copies_groups_stay_as_they_are() -> None:
    groups = np.array([3, 3, 1])
    assert kept_together(groups, np.arange(3)) is groups
    assert kept_together(None, np.arange(3)) is None


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=30))
def test_two_images_share_a_group_if_a_chain_of_copies_and_groups_joins_them(
    pairs: list[tuple[int, int]],
) -> None:
    groups, content = (np.array([pair[i] for pair in pairs], dtype=np.int64) for i in (0, 1))
    joined = kept_together(groups, content)
    assert joined is not None
    reached = {i: {i} for i in range(len(pairs))}
    for _ in pairs:
        for i in reached:
            reached[i] |= {
                j
                for j, pair in enumerate(pairs)
                if any(pair[0] == pairs[k][0] or pair[1] == pairs[k][1] for k in reached[i])
            }
    if len(set(content.tolist())) == len(pairs):
        assert joined is groups
        return
    for i, others in reached.items():
        assert set(np.flatnonzero(joined == joined[i]).tolist()) == others
