"""The version of the app and the commit of its sources, where their checkout is on this machine.

A run executes Flower's copy of the app, which has no history. The checkout is looked for in the folder of the
running sources itself and in the one from which the app was installed (``pip install -e .``), and is believed
only if it holds the very sources that run.
"""

import json
import os
import subprocess
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from federation.runs.fingerprint import PACKAGES, RUNNING, source_fingerprint

LONGEST_SECONDS = 10.0  # for each question to git


def app_version() -> str:
    """Return the version that stands in the pyproject.toml beside the running sources."""
    project = tomllib.loads((RUNNING / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


def source_commit() -> dict[str, Any] | None:
    """Return the commit of the running sources as ``read_commit`` does; None where no checkout has them."""
    digest, root = source_fingerprint()
    for folder in (root, installed_from()):
        if folder is not None and source_fingerprint(folder)[0] == digest and (commit := read_commit(folder)):
            return commit
    return None


def installed_from() -> Path | None:
    """Return the folder from which the app was installed; None where it was not, or not from a folder."""
    try:
        told = distribution("rarefl").read_text("direct_url.json")
    except PackageNotFoundError:
        return None
    url = urlsplit(json.loads(told)["url"] if told else "")
    return Path(url2pathname(url.path)) if url.scheme == "file" else None


def read_commit(folder: Path) -> dict[str, Any] | None:
    """Return the commit that is checked out in a folder, and whether the app differs from it there.

    Returns
    -------
    ``{"id": str, "dirty": bool}``, dirty if a file of the packages or pyproject.toml differs from the commit
    or is not in it; None where git does not know the folder's sources.
    """
    if _git(folder, "ls-files", "--error-unmatch", "federation/runs/fingerprint.py") is None:
        return None  # a copy that lies inside another repository
    commit = _git(folder, "rev-parse", "--verify", "HEAD")
    changes = _git(folder, "status", "--porcelain", "--", *PACKAGES, "pyproject.toml")
    return None if commit is None or changes is None else {"id": commit, "dirty": bool(changes)}


def _git(folder: Path, *words: str) -> str | None:
    """Return what git says, None where it fails or is missing."""
    command = ["git", "--no-optional-locks", "-C", str(folder), *words]
    # Variables such as GIT_DIR, which hooks have, name another repository.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=LONGEST_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
