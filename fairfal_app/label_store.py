"""What a client knows of its labels: which images were queried, which have been labelled, and when.

It lies on the client's own disk, so that neither a killed server nor a restarted client loses a label that
somebody was paid for. Nothing of it leaves the client.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import platformdirs
from filelock import FileLock

from federation.errors import RareflError
from federation.runs.files import replace_file

STATE_DIR = "state-dir"
"""Key of the node config: absolute folder in which a client keeps what must outlive it."""

FILE = "labels.json"
_QUERIED_IDS, _QUERIED_ROUNDS = "queried-ids", "queried-rounds"
_LABELLED_IDS, _LABELS, _LABELLED_ROUNDS = "labelled-ids", "labels", "labelled-rounds"
_COLUMNS = (_QUERIED_IDS, _QUERIED_ROUNDS, _LABELLED_IDS, _LABELS, _LABELLED_ROUNDS)
_SCALARS = "scalars"

Scalars = dict[str, int | float]


class LabelStoreError(RareflError):
    """A query or a label contradicts what the store already holds, or its file cannot be used."""


def client_folder(node_config: Mapping[str, Any], run_key: str, site: str) -> Path:
    """Return the folder of what a client keeps of one run.

    It lies in ``state-dir`` of the node config, by default in the user's own state folder
    (``~/.local/state/rarefl/clients``).

    Raises
    ------
    LabelStoreError
        ``state-dir`` is no absolute path, or the server's name of the run is not made of letters and digits.
    """
    if not (run_key.isascii() and run_key.isalnum()):
        raise LabelStoreError(
            f"{site}: the server calls the run {run_key!r}, which no server of rarefl does: its names are "
            "letters and digits. Nothing was read or written; ask who runs the server"
        )
    given = node_config.get(STATE_DIR, "")
    if given and not (isinstance(given, str) and Path(given).is_absolute()):
        raise LabelStoreError(
            f"node config: {STATE_DIR} = {given!r} is not allowed: it must be the absolute path of a folder, "
            f"such as {Path.home() / 'rarefl-state'}"
        )
    root = Path(given) if given else platformdirs.user_state_path("rarefl") / "clients"
    return root / run_key / quote(site, safe="").replace(".", "%2E")


class LabelStore:
    """Queries and labels of one client in one run; arrays are int64.

    Questions may be asked as of a label round. A server that goes back to a checkpoint then gets the answers
    that it got the first time, whatever the client has learned since.

    Parameters
    ----------
    folder
        Its folder, which is made when there is something to store.
    client
        Name of the client, for errors.
    known
        ``text`` of an earlier store of the same client and run, which is taken where the disk knows less.
    """

    def __init__(self, folder: Path, client: str = "this client", known: str = "") -> None:
        self._file = folder / FILE
        self._client = client
        self._known = _nothing() | (json.loads(known) if known else {})
        self._content = self._read()

    @property
    def text(self) -> str:
        """All that is stored, as JSON."""
        return json.dumps(self._content)

    def labelled(self, label_round: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return ids and labels that came in until a label round, or ever, in the order of their coming."""
        known = slice(None) if label_round is None else self.labelled_rounds() <= label_round
        return self._column(_LABELLED_IDS)[known], self._column(_LABELS)[known]

    def labelled_rounds(self) -> np.ndarray:
        """Return the label round in which each entry of ``labelled()`` came in."""
        return self._column(_LABELLED_ROUNDS)

    def queried(self) -> tuple[np.ndarray, np.ndarray]:
        """Return every id queried so far, labelled or not, and the label round of its query, in order."""
        return self._column(_QUERIED_IDS), self._column(_QUERIED_ROUNDS)

    def scalars(self, label_round: int) -> Scalars:
        """Return the scalars behind the query of a label round."""
        return dict(self._content[_SCALARS].get(str(label_round), {}))

    def record_query(self, label_round: int, ids: np.ndarray, scalars: Scalars | None = None) -> None:
        """Store that a label round queried ids, and the scalars behind the choice; again changes nothing.

        Raises LabelStoreError if an id is listed twice or was queried in another label round.
        """
        wanted = np.asarray(ids, dtype=np.int64).tolist()
        if len(set(wanted)) != len(wanted):
            twice = sorted({i for i in wanted if wanted.count(i) > 1})
            raise LabelStoreError(
                f"{self._client}: label round {label_round} queries ids {twice} more than once"
            )
        with self._changing():
            known = dict(zip(*(column.tolist() for column in self.queried()), strict=True))
            elsewhere = [i for i in wanted if known.get(i, label_round) != label_round]
            if elsewhere:
                raise LabelStoreError(
                    f"{self._client}: label round {label_round} queries id {elsewhere[0]}, which label round "
                    f"{known[elsewhere[0]]} queried already; query only images outside queried()"
                )
            new = [i for i in wanted if i not in known]
            self._append({_QUERIED_IDS: new, _QUERIED_ROUNDS: [label_round] * len(new)})
            self._content[_SCALARS].setdefault(str(label_round), dict(scalars or {}))

    def add(self, label_round: int, ids: np.ndarray, labels: np.ndarray) -> None:
        """Store labels that came in during a label round; the same label again changes nothing.

        Raises LabelStoreError if ids and labels differ in number, an id was not queried, a label is
        negative, or an id has another label already. Nothing of the call is stored then.
        """
        wanted, answers = (np.asarray(values, dtype=np.int64).tolist() for values in (ids, labels))
        if len(wanted) != len(answers):
            raise LabelStoreError(f"{self._client}: {len(answers)} labels came for {len(wanted)} ids")
        with self._changing():
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

    def _column(self, name: str) -> np.ndarray:
        return np.array(self._content[name], dtype=np.int64)

    def _append(self, columns: dict[str, list[int]]) -> None:
        for name, values in columns.items():
            self._content[name] = self._content[name] + values

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Let the block change the content that is there now, while no other process does, and store it."""
        lock = FileLock(self._file.with_suffix(".lock"))
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with lock:
                self._content = self._read()
                yield
                replace_file(self._file, lambda path: path.write_text(self.text, encoding="utf-8"))
        except OSError as error:
            raise self._unusable(error) from None

    def _read(self) -> dict[str, Any]:
        """Return what the disk holds, or what is known if that is more: entries come, and never go."""
        return max(self._read_disk(), self._known, key=lambda content: sum(map(len, content.values())))

    def _read_disk(self) -> dict[str, Any]:
        try:
            content = json.loads(self._file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return _nothing()
        except (OSError, ValueError) as error:
            raise self._unusable(error) from None
        try:
            lengths = [len(np.array(content[name], dtype=np.int64)) for name in _COLUMNS]
            if (
                len(set(lengths[:2])) > 1
                or len(set(lengths[2:])) > 1
                or content.keys() != {*_COLUMNS, _SCALARS}
            ):
                raise ValueError("its columns do not fit together")
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise self._unusable(error) from None
        return dict(content)

    def _unusable(self, error: Exception) -> LabelStoreError:
        reason = getattr(error, "strerror", None) or error
        return LabelStoreError(
            f"{self._client}: {self._file}, the client's labels, cannot be used: {reason}. Put the file back "
            f"from a copy, let the client write there, or give another folder as {STATE_DIR} in its node "
            "config and start a new run"
        )


def _nothing() -> dict[str, Any]:
    return {**{name: [] for name in _COLUMNS}, _SCALARS: {}}
