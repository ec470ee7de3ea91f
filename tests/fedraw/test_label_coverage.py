"""Rarity of labels and clients, and the weights that come of it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as any_array

from fedraw.label_coverage import (
    LabelCoverage,
    client_rarity,
    coverage_bits,
    coverage_from_update,
    label_rarity,
    rare_label_weights,
)

COVERAGE = np.array([[1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 0], [1, 0, 0, 0]], dtype=bool)


def test_rarity_of_labels_by_hand():
    # Held by 4, 2, 1 and 0 of 4 clients: scarcity 1, 2, 4; the last label is left out.
    np.testing.assert_allclose(label_rarity(COVERAGE), [0, 1 / 3, 1, 0])
    assert label_rarity(np.ones((3, 2), dtype=bool)).tolist() == [0, 0]
    assert label_rarity(np.zeros((3, 2), dtype=bool)).tolist() == [0, 0]
    assert label_rarity(np.zeros((0, 2), dtype=bool)).tolist() == [0, 0]


def test_rarity_of_clients_by_hand():
    rarity = label_rarity(COVERAGE)
    np.testing.assert_allclose(client_rarity(COVERAGE, rarity, "mean"), [1 / 6, 1 / 2, 1 / 6, 0])
    np.testing.assert_allclose(client_rarity(COVERAGE, rarity, "max"), [1 / 3, 1, 1 / 3, 0])
    nothing = np.zeros((1, 4), dtype=bool)
    assert client_rarity(nothing, rarity, "mean").tolist() == [0]
    assert client_rarity(nothing, rarity, "max").tolist() == [0]


def test_weights_by_hand():
    np.testing.assert_allclose(
        rare_label_weights(np.array([0.5, 0.5]), np.array([0.0, 1.0]), 3.0), [0.2, 0.8]
    )
    assert rare_label_weights(np.array([0.3, 0.7]), np.array([0.0, 1.0]), 0.0).tolist() == [0.3, 0.7]


@given(
    any_array(bool, st.tuples(st.integers(1, 9), st.integers(1, 5))),
    st.sampled_from(["mean", "max"]),
    st.floats(1e-3, 1e6),
)
def test_rarer_clients_weigh_more_within_bounds(coverage, reduction, strength):
    rarity = client_rarity(coverage, label_rarity(coverage), reduction)
    assert ((rarity >= 0) & (rarity <= 1 + 1e-12)).all()
    size = len(coverage)
    weights = rare_label_weights(np.full(size, 1 / size), rarity, strength)
    assert weights.sum() == pytest.approx(1.0)
    assert weights.max() <= weights.min() * (1 + strength) * (1 + 1e-9)
    if rarity.max() > rarity.min() + 1e-6:
        assert weights[rarity.argmax()] > 1 / size
        assert weights[rarity.argmin()] < 1 / size
    order = np.argsort(rarity, kind="stable")
    assert (np.diff(weights[order]) >= -1e-12).all()


def test_bits_of_a_client():
    assert coverage_bits([0, 1, 5]) == [0, 1, 1]
    assert coverage_bits(np.array([0, 1, 5]), min_label_count=5) == [0, 0, 1]


def test_the_registry_keeps_the_latest_and_ignores_what_is_no_coverage(caplog):
    registry = LabelCoverage({"a": [1, 0], "b": [1, 1]})
    assert registry.rarity(["a", "b", "c"], "max").tolist() == [0, 1, 0]
    assert registry.rare_sites() == {"b"}
    registry.update("a", [1, 1])
    assert registry.rarity(["a", "b"]).tolist() == [0, 0]
    assert registry.rare_sites() == frozenset()
    for nonsense in ([1], [1, 2], [], 1, "10", [1, None]):
        registry.update("b", nonsense)
    assert registry.bits("b") == (1, 1)
    assert caplog.text.count("label coverage of site 'b'") == 1
    assert caplog.text.count("'c' is not known") == 1
    restored = LabelCoverage()
    restored.restore(registry.state())
    assert restored.state() == {"a": [1, 1], "b": [1, 1]}
    assert "b" in restored
    assert LabelCoverage().rarity(["a"]).tolist() == [0]
    assert LabelCoverage().rare_sites() == frozenset()


def softmax_regression(x, y, start, epochs, rng):
    """Train a softmax classifier on features by SGD and return weight (C, D) and bias (C,)."""
    weight, bias = start[0].copy(), start[1].copy()
    for _ in range(epochs):
        for rows in np.array_split(rng.permutation(len(x)), max(1, len(x) // 16)):
            logits = x[rows] @ weight.T + bias
            residual = np.exp(logits - logits.max(axis=1, keepdims=True))
            residual /= residual.sum(axis=1, keepdims=True)
            residual[np.arange(len(rows)), y[rows]] -= 1
            weight -= 0.1 * residual.T @ x[rows] / len(rows)
            bias -= 0.1 * residual.mean(axis=0)
    return weight, bias


def test_coverage_from_updates_finds_most_labels_and_names_few_that_are_absent():
    rng = np.random.default_rng(0)
    centres = np.maximum(rng.normal(size=(10, 30)), 0) * 2
    model = np.zeros((10, 30)), np.zeros(10)
    found = named = held = 0
    for _ in range(15):
        changes = []
        for _ in range(8):
            labels = rng.choice(10, size=rng.integers(1, 7), replace=False)
            y = rng.choice(labels, size=80)
            x = np.maximum(centres[y] + rng.normal(size=(80, 30)), 0)
            trained = softmax_regression(x, y, model, 2, rng)
            change = trained[0] - model[0], trained[1] - model[1]
            changes.append(change)
            present, true = coverage_from_update(*change), np.bincount(y, minlength=10) > 0
            found, named, held = found + (present & true).sum(), named + present.sum(), held + true.sum()
            assert (coverage_from_update(change[0], None) <= present).all()
        model = tuple(m + np.mean([c[i] for c in changes], axis=0) for i, m in enumerate(model))
    assert found / named > 0.95
    assert found / held > 0.85
