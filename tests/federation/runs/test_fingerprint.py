"""The source fingerprint depends on names and contents of what a bundle carries, and on nothing else."""

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import federation
from federation.runs.fingerprint import PACKAGES, source_fingerprint

FILES = {
    "federation/grid.py": "a = 1\n\nb = 2\n",
    "learning/train.py": "c = 3\n",
    "fairfal_app/query/base.py": "d = 4\n",
    "rarefl/__init__.py": "",
}


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    return root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write(tmp_path / "one", FILES)


def test_the_packages_are_those_next_to_federation() -> None:
    here = Path(federation.__file__).parents[1]
    digest, root = source_fingerprint()
    assert (len(digest), root) == (64, here)
    assert all((here / package / "__init__.py").is_file() for package in PACKAGES)


def test_a_copy_has_the_same_fingerprint_whatever_order_it_was_made_in(root: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other", dict(reversed(FILES.items())))
    assert source_fingerprint(root)[0] == source_fingerprint(other)[0]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(text=st.text(st.sampled_from("ab\n\r "), max_size=12), ending=st.sampled_from(["\r\n", "\r"]))
def test_line_endings_do_not_count(root: Path, text: str, ending: str) -> None:
    text = text.replace("\r", "")
    write(root, {"federation/grid.py": text})
    before = source_fingerprint(root)[0]
    write(root, {"federation/grid.py": text.replace("\n", ending)})
    assert source_fingerprint(root)[0] == before


@pytest.mark.parametrize(
    "changed",
    [
        {"federation/grid.py": "a = 2\n\nb = 2\n"},
        {"datasets/new.py": ""},
        {"fairfal_app/query/more.py": "x = 1\n"},
    ],
)
def test_a_changed_or_new_file_changes_it(root: Path, changed: dict[str, str]) -> None:
    before = source_fingerprint(root)[0]
    assert source_fingerprint(write(root, changed))[0] != before


def test_a_moved_file_changes_it(root: Path) -> None:
    before = source_fingerprint(root)[0]
    shutil.move(root / "learning/train.py", root / "learning/trains.py")
    assert source_fingerprint(root)[0] != before


def test_where_a_file_ends_counts(tmp_path: Path) -> None:
    one = write(tmp_path / "one", {"rarefl/a.py": "x\n", "rarefl/b.py": "y\n"})
    two = write(tmp_path / "two", {"rarefl/a.py": "x\ny\n", "rarefl/b.py": ""})
    assert source_fingerprint(one)[0] != source_fingerprint(two)[0]


@pytest.mark.parametrize(
    "ignored",
    [
        "federation/test_grid.py",
        "federation/grid_test.py",
        "federation/__pycache__/grid.py",
        "federation/notes.md",
        "tests/helper.py",
        "setup.py",
    ],
)
def test_what_a_bundle_does_not_carry_does_not_count(root: Path, ignored: str) -> None:
    before = source_fingerprint(root)[0]
    assert source_fingerprint(write(root, {ignored: "x = 1\n"}))[0] == before


def test_links_do_not_count(root: Path) -> None:
    before = source_fingerprint(root)[0]
    (root / "federation/link.py").symlink_to(root / "federation/grid.py")
    assert source_fingerprint(root)[0] == before
