"""Cases worked out by hand, for every test of this folder."""

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def cases() -> dict[str, Any]:
    """The hand-worked cases by subject."""
    return json.loads((Path(__file__).parent / "cases.json").read_text())
