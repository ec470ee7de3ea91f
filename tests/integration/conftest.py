"""A copy of the project and a SuperLink to run it on."""

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from federation.config.run_config import default_run_config, flatten
from rarefl.client_app import app as client_app
from rarefl.server_app import app as server_app
from rarefl.superlink import LocalSuperLink
from tests.inprocess import run_in_process

ROOT = Path(__file__).parents[2]
PACKAGES = ("rarefl", "fairfal_app", "fedraw_app", "federation", "fedraw", "learning", "datasets")


def copy_project(target: Path) -> Path:
    """Copy what a Flower App Bundle is made of, so that a test may change it."""
    target.mkdir()
    for name in ("pyproject.toml", "LICENSE", "README.md"):
        shutil.copy(ROOT / name, target)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, target / package, ignore=shutil.ignore_patterns("__pycache__"))
    return target


def run_in_this_process(settings: Mapping[str, Any], folder: Path) -> None:
    """Run without Flower's processes, with as many threads as a Ray worker has."""
    config = default_run_config() | flatten(settings) | {"output.dir": str(folder)}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    run_in_process(server_app, client_app, config["data.clients"], config)
    torch.set_num_threads(threads)


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
