"""No module imports itself by way of others, not even for type annotations."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ["datasets", "learning", "fedraw", "federation", "fedraw_app", "fairfal_app", "rarefl"]


def module_name(path, root):
    """Return the dotted name of a file."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_by(tree, modules):
    """Return the modules among ``modules`` that a parsed file imports, at any depth of it."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add(whole if whole in modules else node.module)
    return found & modules.keys()


def graph(root, packages):
    """Return the modules that each module of the packages imports."""
    modules = {
        module_name(path, root): ast.parse(path.read_text())
        for package in packages
        for path in (root / package).rglob("*.py")
    }
    return {name: imported_by(tree, modules) for name, tree in modules.items()}


def test_no_module_imports_itself_by_way_of_others():
    whole = graph(ROOT, PACKAGES)
    assert len(whole) > 100
    assert whole["fedraw.run.flush"] >= {"fedraw.run.rule", "fedraw.run.state"}
    tuple(TopologicalSorter(whole).static_order())


@pytest.mark.parametrize("hidden", ["if TYPE_CHECKING:\n    from p.b import B", "def f():\n    import p.b"])
def test_a_circle_is_found_wherever_the_import_stands(tmp_path, hidden):
    (tmp_path / "p").mkdir()
    (tmp_path / "p/a.py").write_text(hidden)
    (tmp_path / "p/b.py").write_text("from p import a")
    with pytest.raises(CycleError):
        tuple(TopologicalSorter(graph(tmp_path, ["p"])).static_order())
