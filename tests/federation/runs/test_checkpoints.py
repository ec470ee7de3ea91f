"""Checkpoints: what comes back, what damage is noticed, and how often a run can afford them."""

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.errors import RunFolderError
from federation.runs.checkpoints import FORMAT, Checkpoint, Checkpoints, Pace

STATE = {"rows": [{"loss": 0.1 + 0.2, "rare": math.inf}], "site": "Klinik Süd", "none": None}


def arrays(value: float) -> dict[str, np.ndarray]:
    return {
        "weight": np.full((2, 3), value, dtype=np.float32).T,
        "steps": np.array(7, dtype=np.int64),
        "empty": np.zeros((0, 2)),
    }


def assert_is(found: Checkpoint | None, value: float) -> None:
    assert found is not None
    assert found.state == STATE | {"value": value}
    assert list(found.arrays) == list(arrays(value))
    for key, array in arrays(value).items():
        assert found.arrays[key].dtype == array.dtype
        np.testing.assert_array_equal(found.arrays[key], array)


@pytest.fixture
def saved(tmp_path: Path) -> Checkpoints:
    """Three checkpoints were saved, of the values 1, 2 and 3."""
    checkpoints = Checkpoints(tmp_path / "checkpoint")
    assert checkpoints.load() is None
    for value in (1.0, 2.0, 3.0):
        checkpoints.save(arrays(value), STATE | {"value": value})
    return checkpoints


def test_the_last_comes_back_and_the_one_before_is_kept(saved: Checkpoints) -> None:
    assert sorted(os.listdir(saved.folder)) == ["000002.json", "000002.pt", "000003.json", "000003.pt"]
    assert_is(Checkpoints(saved.folder).load(), 3.0)
    json.loads((saved.folder / "000003.json").read_text())


def test_numbers_of_numpy_and_nan_are_carried(saved: Checkpoints) -> None:
    saved.save({}, {"a": np.int64(3), "b": np.array([1, 2]), "c": math.nan, "d": np.float32(0.5)})
    found = Checkpoints(saved.folder).load()
    assert found is not None
    assert math.isnan(found.state.pop("c"))
    assert found == ({}, {"a": 3, "b": [1, 2], "d": 0.5})
    with pytest.raises(TypeError, match="Path has no place in a checkpoint"):
        saved.save({}, {"path": Path()})


@given(kind=st.sampled_from(["json", "pt"]), place=st.floats(0, 1, exclude_max=True), cut=st.booleans())
def test_any_damage_is_noticed(
    tmp_path_factory: pytest.TempPathFactory, kind: str, place: float, cut: bool
) -> None:
    folder = tmp_path_factory.mktemp("checkpoint")
    checkpoints = Checkpoints(folder)
    for value in (1.0, 2.0):
        checkpoints.save(arrays(value), STATE | {"value": value})
    file = folder / f"000002.{kind}"
    content = file.read_bytes()
    at = int(place * (len(content.rstrip()) - 1))
    file.write_bytes(content[:at] if cut else content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    assert_is(Checkpoints(folder).load(), 1.0)


def test_after_damage_the_sound_one_is_kept_and_the_damaged_goes(
    saved: Checkpoints, caplog: pytest.LogCaptureFixture
) -> None:
    (saved.folder / "000003.pt").write_bytes(b"")
    later = Checkpoints(saved.folder)
    assert_is(later.load(), 2.0)
    assert f"{saved.folder / '000003.json'}: its tensors in 000003.pt are not what was written" in caplog.text
    later.save(arrays(4.0), STATE | {"value": 4.0})
    assert sorted(os.listdir(saved.folder)) == ["000002.json", "000002.pt", "000004.json", "000004.pt"]


def test_when_all_are_damaged_all_are_named(saved: Checkpoints) -> None:
    (saved.folder / "000003.json").write_text("{")
    (saved.folder / "000002.pt").unlink()
    with pytest.raises(RunFolderError) as caught:
        Checkpoints(saved.folder).load()
    for part in ("000003.json: it cannot be read", "000002.json: its tensors in 000002.pt", "from a copy"):
        assert part in str(caught.value)


def test_those_of_another_version_are_refused_and_kept(saved: Checkpoints) -> None:
    for file in saved.folder.glob("*.json"):
        file.write_text(file.read_text().replace(f'"format": {FORMAT}', '"format": 1', 1))
    before = sorted(saved.folder.iterdir())
    with pytest.raises(RunFolderError, match="format 1, and this version of the app goes on from format 2"):
        saved.load()
    assert sorted(saved.folder.iterdir()) == before


def test_tensors_without_their_json_never_came_to_be(saved: Checkpoints) -> None:
    (saved.folder / "000004.pt").write_bytes(b"half")
    later = Checkpoints(saved.folder)
    assert_is(later.load(), 3.0)
    later.save(arrays(4.0), STATE | {"value": 4.0})
    assert_is(Checkpoints(saved.folder).load(), 4.0)


def test_checkpoints_take_their_share_of_the_time_and_no_more() -> None:
    """Of 1,000 s in steps of 1 s; a checkpoint takes 0.5 s, a hundredth of 50 s."""
    now = [0.0]
    pace = Pace(0.01, clock=lambda: now[0])
    taken = []
    for second in range(1000):
        now[0] = max(now[0], float(second))
        if pace.due():
            with pace.taken():
                now[0] += 0.5
            taken.append(second)
    assert taken == [0, 51, 102, 153, 204, *range(255, 1000, 51)][: len(taken)]
    assert len(taken) == 20
    assert pace.seconds == 10.0


def test_checkpoints_that_are_needed_make_the_others_rarer() -> None:
    now = [100.0]
    pace = Pace(0.1, clock=lambda: now[0])
    with pace.taken():
        now[0] += 2.0
    with pace.taken():
        now[0] += 1.0
    assert not pace.due()
    now[0] = 120.0  # ten times as long as the last, but not as both
    assert not pace.due()
    now[0] = 130.0
    assert pace.due()
