import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairfal_app.query.gradient import GradientEmbeddings, residuals, squared_distances


def materialised(embeddings: GradientEmbeddings) -> np.ndarray:
    return np.einsum("nc,nd->ncd", embeddings.residuals, embeddings.features).reshape(len(embeddings), -1)


def test_hand_worked_embeddings(cases):
    case = cases["gradient_embedding"]
    features, probabilities = np.array([case["features"]]), np.array([case["probabilities"]])
    unlabelled = GradientEmbeddings.of(features, residuals(probabilities))
    anchor = GradientEmbeddings.of(features, residuals(probabilities, np.array([1])))
    np.testing.assert_allclose(materialised(unlabelled)[0], case["unlabelled"], atol=1e-12)
    np.testing.assert_allclose(materialised(anchor)[0], case["anchor_with_label_1"], atol=1e-12)
    assert squared_distances(unlabelled, anchor)[0, 0] == pytest.approx(case["squared_distance"])


def test_the_hypothesis_of_an_unlabelled_image_is_the_lowest_of_its_most_likely_classes():
    assert residuals(np.array([[0.25, 0.5, 0.25], [0.5, 0.0, 0.5]])).tolist() == [
        [-0.25, 0.5, -0.25],
        [0.5, 0.0, -0.5],
    ]


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 6))
def test_factorised_distances_equal_those_of_materialised_embeddings(seed, count, classes):
    rng = np.random.default_rng(seed)
    a, b = (
        GradientEmbeddings.of(rng.random((n, 5)).astype(np.float32), rng.normal(size=(n, classes)))
        for n in (count, 4)
    )
    direct = ((materialised(a)[:, None] - materialised(b)[None]) ** 2).sum(axis=-1)
    np.testing.assert_allclose(squared_distances(a, b), direct, rtol=1e-9, atol=1e-12)


def test_close_embeddings_of_great_norm_keep_their_distance():
    rng = np.random.default_rng(0)
    features = (1000 + rng.random((50, 64)) / 8).astype(np.float32)
    embeddings = GradientEmbeddings.of(features, np.tile(rng.normal(size=3), (50, 1)))
    distances = squared_distances(embeddings, embeddings)
    direct = ((materialised(embeddings)[:, None] - materialised(embeddings)[None]) ** 2).sum(axis=-1)
    np.testing.assert_allclose(distances, direct, rtol=1e-5, atol=1e-6)


def test_rounding_never_makes_a_squared_distance_negative():
    rng = np.random.default_rng(0)
    for width in range(1, 70):
        embeddings = GradientEmbeddings.of(rng.random((40, width)), rng.normal(size=(40, 7)))
        assert squared_distances(embeddings, embeddings).min() >= 0
