import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairfal_app.query import k_center as module
from fairfal_app.query.errors import QueryInputError
from fairfal_app.query.gradient import GradientEmbeddings, residuals
from fairfal_app.query.k_center import k_center


def embeddings(features: list | np.ndarray, residual: list | np.ndarray | None = None) -> GradientEmbeddings:
    features = np.array(features, dtype=np.float32)
    return GradientEmbeddings.of(features, np.ones((len(features), 1)) if residual is None else residual)


def line(values: list[float]) -> GradientEmbeddings:
    return embeddings(np.array(values, dtype=np.float32).reshape(-1, 1))


def plain_k_center(candidates: GradientEmbeddings, anchors: GradientEmbeddings, quota: int) -> list[int]:
    """The rule by plain loops over materialised embeddings."""
    points, fixed = (
        [np.outer(r, h).ravel() for r, h in zip(part.residuals, part.features, strict=True)]
        for part in (candidates, anchors)
    )
    picks: list[int] = []
    while len(picks) < min(quota, len(points)):
        best, farthest = -1, -1.0
        for i, point in enumerate(points):
            others = fixed + [points[j] for j in picks]
            nearest = min((float(((point - other) ** 2).sum()) for other in others), default=math.inf)
            if i not in picks and nearest > farthest:
                best, farthest = i, nearest
        picks.append(best)
    return picks


def test_hand_worked_picks(cases):
    kappa = 4
    for case in cases["k_center"]["cases"]:
        shortlist = case["candidates"][: kappa * case["quota"]]
        picks = k_center(line(shortlist), line(case["anchors"]), case["quota"])
        assert [shortlist[i] for i in picks] == case["picks"]


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(0, 5), st.integers(1, 8))
def test_picks_equal_those_of_plain_loops(seed, count, anchor_count, quota):
    rng = np.random.default_rng(seed)
    candidates = embeddings(rng.random((count, 4)), residuals(rng.dirichlet(np.ones(3), size=count)))
    labels = rng.integers(0, 3, size=anchor_count)
    anchors = embeddings(
        rng.random((anchor_count, 4)), residuals(rng.dirichlet(np.ones(3), size=anchor_count), labels)
    )
    picks = k_center(candidates, anchors, quota)
    if count > quota:
        assert picks.tolist() == plain_k_center(candidates, anchors, quota)
    assert len(set(picks.tolist())) == min(quota, count)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=16),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=4),
    st.data(),
)
def test_ties_and_repeated_embeddings_are_resolved_as_by_plain_loops(points, anchors, data):
    quota = data.draw(st.integers(1, len(points) - 1))
    candidates = embeddings(points)
    fixed = embeddings(np.array(anchors, dtype=np.float32).reshape(-1, 2))
    assert k_center(candidates, fixed, quota).tolist() == plain_k_center(candidates, fixed, quota)


@given(st.integers(0, 2**32 - 1), st.integers(2, 9))
def test_equal_embeddings_are_taken_in_their_order_whatever_the_rounding(seed, copies):
    rng = np.random.default_rng(seed)
    features = np.tile(rng.random((3, 37)), (copies, 1))
    residual = np.tile(rng.normal(size=(3, 11)), (copies, 1))
    anchors = embeddings(features[:1], residual[:1])
    picks = k_center(embeddings(features, residual), anchors, 3 * copies - 1).tolist()
    assert sorted(picks[:2]) == [1, 2]
    assert picks[2:] == [i for i in range(3 * copies - 1) if i not in (1, 2)]


@given(st.integers(0, 2**32 - 1))
def test_candidates_equal_to_an_anchor_are_taken_in_their_order_whatever_the_rounding(seed):
    rng = np.random.default_rng(seed)
    features, residual = rng.random((9, 37)), rng.normal(size=(9, 11))
    order = rng.permutation(9)
    picks = k_center(embeddings(features, residual), embeddings(features[order], residual[order]), 8)
    assert picks.tolist() == list(range(8))


def test_zeros_of_either_sign_are_equal():
    features, residual = np.random.default_rng(0).random((2, 3, 7))
    features[:2], residual[:2] = features[2], residual[2]
    features[0, 0], features[1, 0], features[2, 0] = 0.0, -0.0, 5.0
    picks = k_center(embeddings(features, residual), embeddings(features[:1], residual[:1]), 2)
    assert picks.tolist() == [2, 0]


def test_fifty_identical_images_are_each_picked_once_and_in_order():
    identical = embeddings(np.full((50, 8), 0.1), np.full((50, 3), 1 / 3))
    for anchors in (line([])[:0], embeddings(np.full((2, 8), 0.1), np.full((2, 3), 1 / 3))):
        part = anchors if len(anchors) else embeddings(np.zeros((0, 8)), np.zeros((0, 3)))
        assert k_center(identical, part, 49).tolist() == list(range(49))


def test_anchors_forbid_a_first_pick_by_uncertainty():
    assert k_center(line([0, 3, 1]), line([0]), 1).tolist() == [1]
    assert k_center(line([0, 3, 1]), line([]), 1).tolist() == [0]


def test_no_more_candidates_than_the_quota_come_back_in_their_order():
    assert k_center(line([5, 1, 9]), line([0]), 3).tolist() == [0, 1, 2]
    assert k_center(line([5, 1, 9]), line([0]), 7).tolist() == [0, 1, 2]
    assert k_center(line([5, 1, 9]), line([0]), 0).tolist() == []


@pytest.mark.parametrize("tile", [1, 7, 23, 64])
def test_picks_do_not_depend_on_how_many_distances_are_held_at_once(monkeypatch, tile):
    rng = np.random.default_rng(3)
    candidates = embeddings(rng.random((30, 5)), rng.normal(size=(30, 4)))
    anchors = embeddings(rng.random((23, 5)), rng.normal(size=(23, 4)))
    expected = plain_k_center(candidates, anchors, 9)
    monkeypatch.setattr(module, "TILE", tile)
    assert k_center(candidates, anchors, 9).tolist() == expected


def test_a_distance_that_is_not_a_number_is_refused():
    with pytest.raises(QueryInputError, match="not a number"):
        k_center(line([0, float("nan"), 2]), line([1]), 2)
    with pytest.raises(QueryInputError, match="not a number"):
        k_center(line([0, float("nan"), 2]), line([]), 2)


def test_memory_stays_far_below_that_of_materialised_embeddings():
    rng = np.random.default_rng(0)
    candidates, anchors = (
        embeddings(rng.random((n, 256)), residuals(rng.dirichlet(np.ones(100), size=n))) for n in (2000, 500)
    )
    tracemalloc.start()
    k_center(candidates, anchors, 20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    materialised = 2500 * 100 * 256 * 8
    assert peak < materialised / 8
