import numpy as np
import pytest
from flwr.app import RecordDict
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto

from fairfal_app.label_store import FlowerStateLabelStore, LabelStoreError


@pytest.fixture
def store() -> FlowerStateLabelStore:
    return FlowerStateLabelStore(RecordDict(), client="site-03")


def contents(store: FlowerStateLabelStore) -> list[list[int]]:
    return [column.tolist() for column in (*store.queried(), *store.labelled(), store.labelled_rounds())]


def test_a_new_store_is_empty(store):
    assert contents(store) == [[], [], [], [], []]
    assert store.labelled()[0].dtype == np.int64


def test_labels_stand_in_the_order_of_labelling_with_their_rounds(store):
    store.record_query(1, np.array([30, 10, 20]))
    store.add(1, np.array([20, 30]), np.array([2, 3]))
    store.record_query(2, np.array([5]))
    store.add(2, np.array([10, 5]), np.array([1, 0]))
    assert contents(store) == [
        [30, 10, 20, 5],
        [1, 1, 1, 2],
        [20, 30, 10, 5],
        [2, 3, 1, 0],
        [1, 1, 2, 2],
    ]


def test_the_same_again_changes_nothing(store):
    for _ in range(2):
        store.record_query(1, np.array([3, 1]))
        store.add(1, np.array([1, 3]), np.array([0, 7]))
    store.add(2, np.array([1]), np.array([0]))
    store.add(2, np.array([3, 3]), np.array([7, 7]))
    assert contents(store) == [[3, 1], [1, 1], [1, 3], [0, 7], [1, 1]]


@pytest.mark.parametrize(
    ("ids", "labels", "message"),
    [
        ([1, 9], [0, 0], "site-03: a label came for id 9, which was not queried"),
        ([2, 1], [4, 5], "site-03: id 1 got label 5 .* label 0 already"),
        ([2, 2], [4, 5], "site-03: id 2 got label 5 .* label 4 already"),
        ([2], [-1], "site-03: id 2 got label -1"),
        ([2, 3], [4], "site-03: 1 labels came for 2 ids"),
    ],
)
def test_labels_that_contradict_the_store_are_refused_whole(store, ids, labels, message):
    store.record_query(1, np.array([1, 2, 3]))
    store.add(1, np.array([1]), np.array([0]))
    before = contents(store)
    with pytest.raises(LabelStoreError, match=message):
        store.add(1, np.array(ids), np.array(labels))
    assert contents(store) == before


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([7, 1], "site-03: label round 2 queries id 1, which label round 1 queried already"),
        ([7, 8, 7], r"site-03: label round 2 queries ids \[7\] more than once"),
    ],
)
def test_queries_that_contradict_the_store_are_refused_whole(store, ids, message):
    store.record_query(1, np.array([1, 2]))
    before = contents(store)
    with pytest.raises(LabelStoreError, match=message):
        store.record_query(2, np.array(ids))
    assert contents(store) == before


def test_it_survives_the_way_through_flower():
    state = RecordDict()
    store = FlowerStateLabelStore(state)
    store.record_query(1, np.array([2**40, 0]))
    store.add(1, np.array([2**40]), np.array([3]))
    carried = FlowerStateLabelStore(recorddict_from_proto(recorddict_to_proto(state)))
    assert contents(carried) == contents(store) == [[2**40, 0], [1, 1], [2**40], [3], [1]]
    carried.add(2, np.array([0]), np.array([1]))
    assert carried.labelled()[1].tolist() == [3, 1]
    assert store.labelled()[1].tolist() == [3]


def test_two_stores_on_one_state_see_the_same():
    state = RecordDict()
    FlowerStateLabelStore(state).record_query(1, np.array([4]))
    assert FlowerStateLabelStore(state).queried()[0].tolist() == [4]
