"""Nodes that come and go during an asynchronous run."""

import copy
import threading
import time

from flwr.app import RecordDict

from federation.config.run_config import default_run_config
from federation.messages.connected import ConnectedGrid
from federation.messages.grid import ClientGrid
from federation.messages.hello import say_hello
from rarefl.client_app import app as client_app
from tests.inprocess import InProcessGrid

CONFIG = default_run_config() | {"app": "fedraw", "data.clients": 3}


def moved(inner: InProcessGrid, old: int, new: int, partition: int) -> None:
    """Let a node vanish, and another one of that partition appear."""
    context = copy.copy(inner.contexts.pop(old))
    context.node_id, context.state = new, RecordDict()
    context.node_config = {"partition-id": partition, "num-partitions": 3}
    inner.contexts[new] = context
    inner.locks[new] = inner.locks[old]


def connected() -> tuple[InProcessGrid, ConnectedGrid]:
    inner = InProcessGrid(client_app, 3, CONFIG, workers=3)
    clients = ClientGrid(inner)
    sites = say_hello(clients, 3, 60.0).sites
    return inner, ConnectedGrid(clients, {site.node_id: site.name for site in sites})


def nodes_after_the_hello(grid: ConnectedGrid) -> list[int]:
    """Look at the nodes until every new one has answered."""
    deadline = time.monotonic() + 60.0
    grid.get_node_ids()
    while grid._asked and time.monotonic() < deadline:
        time.sleep(0.001)
        grid._meet()
    return grid.get_node_ids()


def test_a_node_that_is_started_again_takes_the_place_of_its_site() -> None:
    inner, grid = connected()
    assert grid.get_node_ids() == [1000, 1001, 1002]
    moved(inner, 1001, 7, partition=1)
    assert nodes_after_the_hello(grid) == [1000, 7, 1002]
    assert grid.names[7] == grid.site_name(7) == "site-01"
    hellos = len(inner.sent)
    assert nodes_after_the_hello(grid) == [1000, 7, 1002]
    assert len(inner.sent) == hellos
    del inner.contexts[7]
    assert grid.get_node_ids() == [1000, 1002]


def test_a_node_without_a_name_or_of_another_site_is_left_alone() -> None:
    inner, grid = connected()
    moved(inner, 1002, 8, partition=99)
    assert nodes_after_the_hello(grid) == [1000, 1001]
    nodes_after_the_hello(grid)
    (failure,) = grid.failures  # asked more than once, told once
    assert failure.site == "node 8"
    assert "99" in failure.reason
    inner.contexts[8].node_config = {"partition-id": 2, "site": "somebody"}
    nodes_after_the_hello(grid)
    assert nodes_after_the_hello(grid) == [1000, 1001]
    assert 8 not in grid.names
    hellos = len(inner.sent)
    assert nodes_after_the_hello(grid) == [1000, 1001]
    assert len(inner.sent) == hellos


def test_nobody_waits_for_a_node_that_is_slow_to_say_its_name() -> None:
    inner, grid = connected()
    answered = threading.Event()
    inner.latency = lambda message: 60.0 * (not answered.wait(60.0))
    moved(inner, 1001, 7, partition=1)
    assert grid.get_node_ids() == [1000, 1002]
    assert grid.get_node_ids() == [1000, 1002]
    assert [m.metadata.dst_node_id for m in inner.sent[3:]] == [7]  # asked once
    answered.set()
    assert nodes_after_the_hello(grid) == [1000, 7, 1002]
