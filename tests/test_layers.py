"""Imports go one way: rarefl -> fairfal_app -> fedraw_app -> federation -> {fedraw, learning} -> datasets."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LAYERS = ["datasets", "learning", "fedraw", "federation", "fedraw_app", "fairfal_app", "rarefl"]


def imported(path: Path) -> set[str]:
    """Return the modules that a file imports, at any depth."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            modules.add(node.module or "")
    return modules


@pytest.mark.parametrize("layer", LAYERS)
def test_imports_go_down_the_house(layer: str) -> None:
    above = set(LAYERS[LAYERS.index(layer) + 1 :])
    if layer == "fedraw":  # the library stands alone
        above = set(LAYERS) - {layer}
    files = sorted((ROOT / layer).rglob("*.py"))
    assert files
    for path in files:
        upward = {module for module in imported(path) if module.split(".")[0] in above}
        assert not upward, f"{path} imports {upward}"


@pytest.mark.parametrize("layer", ["datasets", "learning"])
def test_lower_layers_know_no_flower(layer: str) -> None:
    for path in (ROOT / layer).rglob("*.py"):
        assert not {module for module in imported(path) if module.split(".")[0] == "flwr"}, path


def test_the_library_needs_flwr_and_numpy_only() -> None:
    for path in (ROOT / "fedraw").rglob("*.py"):
        roots = {module.split(".")[0] for module in imported(path)}
        assert roots <= {"flwr", "numpy", "fedraw"} | sys.stdlib_module_names, path


def test_no_pickle_and_no_global_generator() -> None:
    forbidden = ("import pickle", "np.random.seed", "torch.manual_seed", "random.seed", "weights_only=False")
    for layer in LAYERS:
        for path in (ROOT / layer).rglob("*.py"):
            source = path.read_text()
            assert not [text for text in forbidden if text in source], path
