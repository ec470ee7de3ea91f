"""Imports go one way: rarefl -> fairfal_app -> fedraw_app -> federation -> learning -> datasets."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LAYERS = ["datasets", "learning", "federation", "fedraw_app", "fairfal_app", "rarefl"]
STANDALONE = {"strategies", "clock", "delays", "label_coverage"}  # of fedraw_app: what a foreign app imports


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
    files = sorted((ROOT / layer).rglob("*.py"))
    assert files
    for path in files:
        upward = {module for module in imported(path) if module.split(".")[0] in above}
        assert not upward, f"{path} imports {upward}"


@pytest.mark.parametrize("layer", ["datasets", "learning"])
def test_lower_layers_know_no_flower(layer: str) -> None:
    for path in (ROOT / layer).rglob("*.py"):
        assert not {module for module in imported(path) if module.split(".")[0] == "flwr"}, path


def test_what_a_foreign_app_imports_needs_nothing_else_of_ours() -> None:
    files = [
        path for path in (ROOT / "fedraw_app").rglob("*.py") if STANDALONE & set(path.with_suffix("").parts)
    ]
    assert files
    for path in files:
        roots = {module.split(".")[0] for module in imported(path)}
        assert not roots & (set(LAYERS) - {"fedraw_app"}), path
        assert not roots & {"torch", "pandas", "pydantic", "sklearn"}, path


def test_no_pickle_and_no_global_generator() -> None:
    forbidden = ("import pickle", "np.random.seed", "torch.manual_seed", "random.seed", "weights_only=False")
    for layer in LAYERS:
        for path in (ROOT / layer).rglob("*.py"):
            source = path.read_text()
            assert not [text for text in forbidden if text in source], path
