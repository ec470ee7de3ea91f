"""The commit of the sources is told where a checkout has them, and nowhere else."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from federation.runs import checkout
from federation.runs.checkout import app_version, installed_from, read_commit, source_commit
from federation.runs.fingerprint import PACKAGES, source_fingerprint

FILES = {
    "federation/runs/fingerprint.py": "a = 1\n",
    "learning/train.py": "b = 2\n",
    "pyproject.toml": '[project]\nname = "rarefl"\nversion = "9.8.7"\n',
    "README.md": "one\n",
}


def git(folder: Path, *words: str) -> str:
    names = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", "-C", str(folder), *names, *words], capture_output=True, check=True)
    return done.stdout.decode().strip()


def write(folder: Path) -> Path:
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = write(tmp_path / "clone")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    return folder


@pytest.fixture
def run_from(monkeypatch: pytest.MonkeyPatch):
    """Let the app run from one folder and be installed from another."""

    def set_up(running: Path, installed: Path | None) -> None:
        def fingerprint(root: Path | None = None) -> tuple[str, Path]:
            return source_fingerprint(root or running)

        monkeypatch.setattr(checkout, "source_fingerprint", fingerprint)
        monkeypatch.setattr(checkout, "RUNNING", running)
        monkeypatch.setattr(checkout, "installed_from", lambda: installed)

    return set_up


def test_a_clean_checkout(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = git(repository, "rev-parse", "HEAD")
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert read_commit(repository) == {"id": head, "dirty": False}
    (repository / "README.md").write_text("two\n")
    (repository / "results.csv").write_text("")
    assert read_commit(repository) == {"id": head, "dirty": False}


@pytest.mark.parametrize("name", ["learning/train.py", "fairfal_app/new.py", "pyproject.toml"])
def test_a_changed_or_new_file_of_the_app_makes_it_dirty(repository: Path, name: str) -> None:
    (repository / name).parent.mkdir(exist_ok=True)
    (repository / name).write_text("c = 3\n")
    assert read_commit(repository) == {"id": git(repository, "rev-parse", "HEAD"), "dirty": True}


def test_no_commit_where_git_does_not_know_the_sources(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_commit(write(tmp_path / "copy")) is None
    inside = write(repository / "apps" / "copy")
    (repository / ".gitignore").write_text("apps/\n")
    assert read_commit(inside) is None
    unborn = write(tmp_path / "unborn")
    git(unborn, "init", "-q")
    git(unborn, "add", ".")
    assert read_commit(unborn) is None
    assert read_commit(tmp_path / "missing") is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert read_commit(repository) is None


def test_a_copy_has_the_commit_of_the_checkout_that_it_was_made_from(
    repository: Path, tmp_path: Path, run_from
) -> None:
    head = {"id": git(repository, "rev-parse", "HEAD"), "dirty": False}
    bundle = shutil.copytree(repository, tmp_path / "bundle", ignore=shutil.ignore_patterns(".git"))
    run_from(bundle, repository)
    assert source_commit() == head
    assert app_version() == "9.8.7"
    run_from(bundle, None)
    assert source_commit() is None
    run_from(repository, None)
    assert source_commit() == head
    (repository / "learning/train.py").write_text("b = 3\n")
    run_from(bundle, repository)
    assert source_commit() is None


@pytest.mark.parametrize(
    ("told", "folder"),
    [
        ({"url": "file:///home/me/my%20clone", "dir_info": {"editable": True}}, Path("/home/me/my clone")),
        ({"url": "https://example.org/rarefl.tar.gz"}, None),
        (None, None),
    ],
)
def test_where_the_app_was_installed_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: dict | None, folder: Path | None
) -> None:
    info = tmp_path / "rarefl-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rarefl\nVersion: 0.1.0\n")
    if told is not None:
        (info / "direct_url.json").write_text(json.dumps(told))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert installed_from() == folder


def test_an_app_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    assert installed_from() is None


def test_the_running_sources_are_looked_at() -> None:
    _, root = source_fingerprint()
    assert source_commit() == read_commit(root)
    assert {"federation", "learning"} < set(PACKAGES)
