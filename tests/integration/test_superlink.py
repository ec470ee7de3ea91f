"""A SuperLink of our own runs a small Flower App, tells success from failure, and leaves nothing behind."""

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from rarefl.superlink import HOME_MARK, LocalSuperLink

PYPROJECT = """
[project]
name = "tiny-app"
version = "0.1.0"
[tool.flwr.app]
publisher = "tests"
[tool.flwr.app.components]
serverapp = "tiny.server:app"
clientapp = "tiny.client:app"
[tool.flwr.app.config]
fail = false
nodes = 2
"""
SERVER = """
import time

from flwr.app import Message, RecordDict
from flwr.serverapp import ServerApp

app = ServerApp()

@app.main()
def main(grid, context):
    while len(nodes := list(grid.get_node_ids())) < context.run_config["nodes"]:
        time.sleep(0.1)  # the ServerApp starts before its nodes are known
    messages = [Message(RecordDict(), dst_node_id=node, message_type="query") for node in nodes]
    replies = list(grid.send_and_receive(messages))
    print(f"[round 1/1] {len(replies)} replies, {sum(r.has_error() for r in replies)} errors", flush=True)
    if context.run_config["fail"]:
        raise ValueError("the pool of site 3 is empty")
"""
CLIENT = """
from flwr.app import Message, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()

@app.query()
def query(message, context):
    return Message(RecordDict(), reply_to=message)
"""


@pytest.fixture(scope="module")
def tiny_app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tiny-app")
    (root / "tiny").mkdir()
    (root / "pyproject.toml").write_text(PYPROJECT)
    for name, text in (("__init__", ""), ("server", SERVER), ("client", CLIENT)):
        (root / "tiny" / f"{name}.py").write_text(text)
    return root


@pytest.fixture(scope="module")
def superlink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSuperLink]:
    with LocalSuperLink(tmp_path_factory.mktemp("home")) as superlink:
        yield superlink
    assert not superlink.running
    assert superlink.log_file.stat().st_size > 0
    assert marked(superlink.home) == []


def marked(home: Path) -> list[psutil.Process]:
    """Return every process that was started for the SuperLink with this home."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(HOME_MARK) == str(home):
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_a_run_that_succeeds(superlink: LocalSuperLink, tiny_app: Path) -> None:
    lines: list[str] = []

    outcome = superlink.submit(
        tiny_app, federation_config="num-supernodes=2 client-resources-num-cpus=1", on_line=lines.append
    )

    assert outcome.completed
    assert outcome.status == "finished:completed"
    assert "[round 1/1] 2 replies, 0 errors" in lines


def test_a_run_that_fails(superlink: LocalSuperLink, tiny_app: Path, tmp_path: Path) -> None:
    (tmp_path / "fail.toml").write_text("fail = true\n")

    outcome = superlink.submit(
        tiny_app, tmp_path / "fail.toml", "num-supernodes=2 client-resources-num-cpus=1", lambda line: None
    )

    assert (outcome.completed, outcome.status) == (False, "finished:failed")
    assert "the pool of site 3 is empty" in outcome.details
