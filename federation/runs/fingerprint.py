"""A fingerprint of the source files, by which the server sees whether its clients run the same code.

In simulation Ray puts the folder in which the SuperLink was started first on its workers' path. If a copy of
the packages lies there, the clients import that copy and not the one that was submitted.
"""

import hashlib
from pathlib import Path

PACKAGES = ("datasets", "fairfal_app", "federation", "fedraw", "fedraw_app", "learning", "rarefl")


RUNNING = Path(__file__).resolve().parents[2]
"""The folder of the sources that run."""


def source_fingerprint(root: Path | None = None) -> tuple[str, Path]:
    """Return the SHA-256 digest of the source files and the folder that they lie in.

    Only files that a Flower App Bundle carries count (no tests, no links), with their paths relative to the
    folder, so that a clone and an installed bundle of it agree. Line endings do not count.

    Parameters
    ----------
    root
        The folder that holds the packages; by default the one from which this module was imported.
    """
    root = RUNNING if root is None else root
    digest = hashlib.sha256()
    for name, path in sorted((path.relative_to(root).as_posix(), path) for path in _sources(root)):
        content = path.read_bytes().replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        for part in (name.encode(), content):
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
    return digest.hexdigest(), root


def _sources(root: Path) -> list[Path]:
    return [
        path
        for package in PACKAGES
        for path in (root / package).rglob("*.py")
        if path.is_file()
        and not path.is_symlink()
        and "__pycache__" not in path.relative_to(root).parts
        and not path.name.startswith("test_")
        and not path.name.endswith("_test.py")
    ]
