"""What a foreign app gets from the wheel: the strategies by name, on flwr and numpy alone."""

import ast
import sys
from pathlib import Path

import pytest
from flwr.serverapp.strategy import Strategy

import fedraw_app
from fedraw_app.errors import UnknownNameError
from fedraw_app.strategies import ASYNCHRONOUS, STRATEGIES, SYNCHRONOUS, AsynchronousStrategy, build_strategy

PACKAGE = Path(fedraw_app.__file__).parent
ALONE = [*PACKAGE.glob("strategies/*.py")] + [
    PACKAGE / f"{name}.py"
    for name in ("clock", "delays", "errors", "label_coverage", "mailbox", "randomness", "tables")
]


@pytest.mark.parametrize("path", ALONE, ids=lambda path: path.stem)
def test_modules_import_flwr_numpy_and_the_standard_library_only(path):
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module]
        for name in names:
            package = name.split(".")[0]
            assert package in {"flwr", "numpy", "fedraw_app"} or package in sys.stdlib_module_names
            if package == "fedraw_app":
                parts = name.split(".")[1:]
                assert parts[0] == "strategies" or PACKAGE / f"{parts[0]}.py" in ALONE


@pytest.mark.parametrize("name", list(STRATEGIES))
def test_every_name_builds_a_strategy(name):
    settings = {"proximal_mu": 0.1, "server_lr": 0.1, "buffer_keys": None} if name in SYNCHRONOUS else {}
    assert isinstance(build_strategy(name, **settings), Strategy)


def test_every_asynchronous_strategy_has_a_name():
    def below(cls):
        return {cls} | {each for sub in cls.__subclasses__() for each in below(sub)}

    written = {cls for cls in below(AsynchronousStrategy) if cls.__module__.startswith("fedraw_app")}
    assert written - {AsynchronousStrategy} == set(ASYNCHRONOUS.values())


def test_an_unknown_name_is_an_error_with_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'fedbuff'"):
        build_strategy("fedbuf")
