import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fairfal_app.query.prototypes import prototypes, pseudo_labels


def test_hand_worked_pseudo_label_needs_the_renormalised_mean(cases):
    case = cases["prototypes"]
    features, labels = np.array(case["features"], np.float32), np.array(case["labels"])
    query = np.array([case["query"]], np.float32)
    assert pseudo_labels(query, features, labels, 2).tolist() == [case["pseudo_label"]]
    plain_means = np.array([features[labels == c].mean(axis=0) for c in (0, 1)])
    assert (query @ plain_means.T).argmax() != case["pseudo_label"]


def test_features_are_normalised_before_the_mean():
    features, labels = np.array([[100, 0], [0, 1], [3, 1]], np.float32), np.array([0, 0, 1])
    np.testing.assert_allclose(prototypes(features, labels, 2)[0], [0.5**0.5, 0.5**0.5])
    # A mean of the raw features would put class 0 at (1, 0.01), the nearer one to (1, 0).
    assert pseudo_labels(np.array([[1, 0]], np.float32), features, labels, 2).tolist() == [1]


def test_a_class_without_labels_attracts_nothing():
    features, labels = np.array([[1, 0], [0, 1]], np.float32), np.array([1, 3])
    pool = np.array([[1, 0.1], [0, 1], [-1, -1], [0, 0]], np.float32)
    assert pseudo_labels(pool, features, labels, 5).tolist() == [1, 3, 1, 1]


def test_ties_go_to_the_lowest_labelled_class():
    features, labels = np.array([[1, 0], [0, 1]], np.float32), np.array([2, 1])
    assert pseudo_labels(np.array([[1, 1], [0, 0]], np.float32), features, labels, 3).tolist() == [1, 1]


def test_a_class_whose_features_are_all_zero_keeps_similarity_zero():
    features, labels = np.array([[0, 0], [0, 1]], np.float32), np.array([0, 1])
    assert prototypes(features, labels, 2).tolist() == [[0, 0], [0, 1]]
    assert pseudo_labels(np.array([[1, 0.1], [1, 0]], np.float32), features, labels, 2).tolist() == [1, 0]


@given(st.integers(0, 2**32 - 1))
def test_pseudo_labels_are_labelled_classes_and_ignore_the_scale(seed):
    rng = np.random.default_rng(seed)
    pool, labelled = rng.random((20, 4)).astype(np.float32), rng.random((6, 4)).astype(np.float32)
    labels = rng.integers(0, 7, size=6)
    found = pseudo_labels(pool, labelled, labels, 7)
    assert set(found) <= set(labels)
    scale = 2.0 ** rng.integers(-3, 4, size=(20, 1))
    assert (pseudo_labels(pool * scale, labelled, labels, 7) == found).all()
