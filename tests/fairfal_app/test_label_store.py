"""A client's labels on its disk: what is stored and refused, and what a server that goes back is told."""

import json
from pathlib import Path

import numpy as np
import pytest

from fairfal_app.label_store import LabelStore, LabelStoreError, client_folder


@pytest.fixture
def store(tmp_path: Path) -> LabelStore:
    return LabelStore(tmp_path, client="site-03")


def contents(store: LabelStore) -> list[list[int]]:
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


def test_what_is_known_is_taken_where_the_disk_knows_less(store, tmp_path):
    store.record_query(1, np.array([3, 1]), {"s": 0.5})
    early = store.text
    store.add(1, np.array([1, 3]), np.array([0, 7]))
    late = store.text
    for disk, known in (("empty", late), ("early", late), ("late", early), ("late", "")):
        folder = tmp_path / f"{disk}-{len(known)}"
        folder.mkdir()
        if disk != "empty":
            (folder / "labels.json").write_text({"early": early, "late": late}[disk])
        other = LabelStore(folder, known=known)
        assert contents(other) == [[3, 1], [1, 1], [1, 3], [0, 7], [1, 1]]
        other.record_query(2, np.array([2]))
        assert contents(LabelStore(folder)) == [[3, 1, 2], [1, 1, 2], [1, 3], [0, 7], [1, 1]]
        assert LabelStore(folder).scalars(1) == {"s": 0.5}


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


def test_another_process_finds_what_was_stored(tmp_path):
    store = LabelStore(tmp_path)
    store.record_query(1, np.array([2**40, 0]), {"s": 0.1 + 0.2, "global-model": 1})
    store.add(1, np.array([2**40]), np.array([3]))
    other = LabelStore(tmp_path)
    assert contents(other) == contents(store) == [[2**40, 0], [1, 1], [2**40], [3], [1]]
    assert other.scalars(1) == {"s": 0.1 + 0.2, "global-model": 1}
    assert other.scalars(2) == {}
    other.add(2, np.array([0]), np.array([1]))
    assert LabelStore(tmp_path).labelled()[1].tolist() == [3, 1]


def test_a_change_builds_on_what_another_process_stored_in_the_meantime(tmp_path):
    first, second = LabelStore(tmp_path), LabelStore(tmp_path)
    first.record_query(1, np.array([4]))
    second.record_query(1, np.array([5]), {"s": 0.5})
    assert second.queried()[0].tolist() == [4, 5]
    assert second.scalars(1) == {}  # those of the first answer stay


def test_labels_as_of_a_label_round(store):
    for label_round, ids in ((1, [5, 2]), (2, [7]), (3, [1])):
        store.record_query(label_round, np.array(ids))
        store.add(label_round, np.array(ids), np.array(ids) % 3)
    assert [store.labelled(label_round)[0].tolist() for label_round in (0, 1, 2, 3)] == [
        [],
        [5, 2],
        [5, 2, 7],
        [5, 2, 7, 1],
    ]
    assert store.labelled(2)[1].tolist() == [2, 2, 1]


def test_nothing_is_on_the_disk_before_the_first_query(tmp_path):
    LabelStore(tmp_path / "client").labelled()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"queried-ids": [1',
        "[]",
        "{}",
        json.dumps({"queried-ids": [1], "queried-rounds": [], "scalars": {}}),
    ],
)
def test_a_file_that_is_damaged_is_named_with_the_way_out(tmp_path, text):
    (tmp_path / "labels.json").write_text(text)
    with pytest.raises(LabelStoreError, match=rf"site-03: {tmp_path}/labels.json, .* from a copy"):
        LabelStore(tmp_path, "site-03")
    assert (tmp_path / "labels.json").read_text() == text


def test_a_folder_that_cannot_be_written_is_named_with_the_way_out(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LabelStoreError, match=r"labels.json, .* cannot be used: .*state-dir"):
        LabelStore(tmp_path / "file" / "client").record_query(1, np.array([1]))


def test_where_a_client_keeps_its_state(tmp_path, state_folder):
    assert client_folder({}, "k", "site-01") == state_folder / "k" / "site-01"
    assert client_folder({"state-dir": str(tmp_path)}, "k", "site-01") == tmp_path / "k" / "site-01"
    for name in ("../../up", "..", ".", "a/b", "Universitäts-Klinik"):
        folder = client_folder({"state-dir": str(tmp_path)}, "k", name)
        assert folder.parent == (tmp_path / "k")
        assert folder.resolve() == folder
    assert client_folder({}, "k", "a/b") != client_folder({}, "k", "a%2Fb")
    for wrong in ("", "..", "../other", "a/b", "ä"):
        with pytest.raises(LabelStoreError, match="site-01: the server calls the run"):
            client_folder({}, wrong, "site-01")
    for wrong in ("state", 3):
        with pytest.raises(LabelStoreError, match=rf"state-dir = {wrong!r} is not allowed.*absolute"):
            client_folder({"state-dir": wrong}, "k", "a")
