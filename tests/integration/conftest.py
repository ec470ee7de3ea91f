"""A copy of the project and a SuperLink to run it on."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from rarefl.superlink import LocalSuperLink

ROOT = Path(__file__).parents[2]
PACKAGES = ("rarefl", "fairfal_app", "fedraw_app", "federation", "learning", "datasets")


def copy_project(target: Path) -> Path:
    """Copy what a Flower App Bundle is made of, so that a test may change it."""
    target.mkdir()
    for name in ("pyproject.toml", "LICENSE", "README.md"):
        shutil.copy(ROOT / name, target)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, target / package, ignore=shutil.ignore_patterns("__pycache__"))
    return target


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_project(tmp_path_factory.mktemp("projects") / "rarefl")


@pytest.fixture(scope="module")
def superlink_with_other_datasets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSuperLink]:
    """A SuperLink in whose environment another package called ``datasets`` is installed, and breaks."""
    other = tmp_path_factory.mktemp("other") / "datasets"
    other.mkdir()
    (other / "__init__.py").write_text("raise ImportError('this is the other package called datasets')\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(other.parent))
        with LocalSuperLink(tmp_path_factory.mktemp("home")) as superlink:
            yield superlink
