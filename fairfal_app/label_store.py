"""What a client knows of its labels: which images were queried, which have been labelled, and when."""

from typing import Protocol, cast

import numpy as np
from flwr.app import ConfigRecord, RecordDict

from federation.errors import RareflError

_RECORD = "fairfal.labels"
_QUERIED_IDS, _QUERIED_ROUNDS = "queried-ids", "queried-rounds"
_LABELLED_IDS, _LABELS, _LABELLED_ROUNDS = "labelled-ids", "labels", "labelled-rounds"
_COLUMNS = (_QUERIED_IDS, _QUERIED_ROUNDS, _LABELLED_IDS, _LABELS, _LABELLED_ROUNDS)


class LabelStoreError(RareflError):
    """A query or a label contradicts what the store already holds; nothing of it was stored."""


class LabelStore(Protocol):
    """Queries and labels of one client; it survives the client's process. Arrays are int64."""

    def labelled(self) -> tuple[np.ndarray, np.ndarray]:
        """Return ids and labels in the order in which they were labelled."""

    def labelled_rounds(self) -> np.ndarray:
        """Return the label round in which each entry of ``labelled()`` came in."""

    def queried(self) -> tuple[np.ndarray, np.ndarray]:
        """Return every id queried so far, labelled or not, and the label round of its query, in order."""

    def record_query(self, label_round: int, ids: np.ndarray) -> None:
        """Store that a label round queried ids; the same again changes nothing. Raises LabelStoreError."""

    def add(self, label_round: int, ids: np.ndarray, labels: np.ndarray) -> None:
        """Store labels of queried ids; the same label again changes nothing. Raises LabelStoreError."""


class FlowerStateLabelStore:
    """A label store in the state of a client's Flower context, as lists of ints in one ConfigRecord.

    Flower keeps that state between the messages of a run, whichever process answers them. ``client`` is
    named in errors.
    """

    def __init__(self, state: RecordDict, client: str = "this client") -> None:
        self._state = state
        self._client = client

    def labelled(self) -> tuple[np.ndarray, np.ndarray]:
        """Return ids and labels in the order in which they were labelled."""
        return self._column(_LABELLED_IDS), self._column(_LABELS)

    def labelled_rounds(self) -> np.ndarray:
        """Return the label round in which each entry of ``labelled()`` came in."""
        return self._column(_LABELLED_ROUNDS)

    def queried(self) -> tuple[np.ndarray, np.ndarray]:
        """Return every id queried so far and the label round of its query, in order."""
        return self._column(_QUERIED_IDS), self._column(_QUERIED_ROUNDS)

    def record_query(self, label_round: int, ids: np.ndarray) -> None:
        """Store that a label round queried ids.

        Raises LabelStoreError if an id is listed twice or was queried in another label round.
        """
        wanted = np.asarray(ids, dtype=np.int64).tolist()
        known = dict(zip(*(column.tolist() for column in self.queried()), strict=True))
        if len(set(wanted)) != len(wanted):
            twice = sorted({i for i in wanted if wanted.count(i) > 1})
            raise LabelStoreError(
                f"{self._client}: label round {label_round} queries ids {twice} more than once"
            )
        elsewhere = [i for i in wanted if known.get(i, label_round) != label_round]
        if elsewhere:
            raise LabelStoreError(
                f"{self._client}: label round {label_round} queries id {elsewhere[0]}, which label round "
                f"{known[elsewhere[0]]} queried already; query only images outside queried()"
            )
        new = [i for i in wanted if i not in known]
        self._append({_QUERIED_IDS: new, _QUERIED_ROUNDS: [label_round] * len(new)})

    def add(self, label_round: int, ids: np.ndarray, labels: np.ndarray) -> None:
        """Store labels that came in during a label round.

        Raises LabelStoreError if ids and labels differ in number, an id was not queried, a label is
        negative, or an id has another label already. Nothing of the call is stored then.
        """
        wanted, answers = (np.asarray(values, dtype=np.int64).tolist() for values in (ids, labels))
        if len(wanted) != len(answers):
            raise LabelStoreError(f"{self._client}: {len(answers)} labels came for {len(wanted)} ids")
        queried = set(self._column(_QUERIED_IDS).tolist())
        known = dict(zip(*(column.tolist() for column in self.labelled()), strict=True))
        new: dict[int, int] = {}
        for i, label in zip(wanted, answers, strict=True):
            if i not in queried:
                raise LabelStoreError(f"{self._client}: a label came for id {i}, which was not queried")
            if label < 0:
                raise LabelStoreError(f"{self._client}: id {i} got label {label}; labels start at 0")
            earlier = known.get(i, new.get(i, label))
            if earlier != label:
                raise LabelStoreError(
                    f"{self._client}: id {i} got label {label} and has label {earlier} already"
                )
            if i not in known:
                new[i] = label
        self._append(
            {
                _LABELLED_IDS: list(new),
                _LABELS: list(new.values()),
                _LABELLED_ROUNDS: [label_round] * len(new),
            }
        )

    def _stored(self) -> dict[str, list[int]]:
        """Return a copy of every column."""
        record = self._state.config_records.get(_RECORD, ConfigRecord())
        return {name: list(cast(list[int], record.get(name, []))) for name in _COLUMNS}

    def _column(self, name: str) -> np.ndarray:
        return np.array(self._stored()[name], dtype=np.int64)

    def _append(self, columns: dict[str, list[int]]) -> None:
        stored = self._stored()
        self._state[_RECORD] = ConfigRecord({name: stored[name] + columns.get(name, []) for name in _COLUMNS})
