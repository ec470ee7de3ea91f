"""The library's README: its table is the registry's, and its code runs."""

import re
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Context, RecordDict

import fedraw
from fedraw.clock import VirtualClock
from tests.fedraw.test_foreign_app import foreign_client
from tests.fedraw.toy import arrays_of, check_accounts, start
from tests.inprocess import InProcessGrid

README = (Path(fedraw.__file__).parent / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS)
def test_each_block_of_code_runs(block):
    exec(block, {"__name__": "readme"})


def test_the_app_of_the_first_block_trains(capsys):
    namespace = {}
    exec(BLOCKS[0], namespace)
    grid = InProcessGrid(foreign_client(coverage=True), 4)
    context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config={})
    namespace["app"](grid=grid, context=context)
    assert "'site-3'" in capsys.readouterr().out
    assert len(grid.received) >= 300


def test_the_one_changed_line_is_fedavgs_with_one_more_argument():
    new, old = re.search(r"strategy = (.*?)  # was: (.*)", BLOCKS[0]).groups()
    assert new.replace("FedRAW", "FedAvg").replace(", buffer_size=3", "") == old


def test_the_table_shows_every_asynchronous_strategy():
    rows = re.findall(r"^\| `(\w+)` \| (.*) \| (.*) \|$", README, re.MULTILINE)
    assert rows == [
        (kind.__name__, kind.__doc__.splitlines()[0], kind.paper) for kind in fedraw.ASYNCHRONOUS.values()
    ]


def test_a_strategy_of_ones_own_runs():
    namespace = {}
    exec(next(block for block in BLOCKS if "FreshestFirst" in block), namespace)
    log = []
    strategy = namespace["FreshestFirst"](buffer_size=2, concurrency=3, clock=VirtualClock(), events=log)
    result = start(strategy, versions=6)
    check_accounts(log, result.influence)
    assert np.abs(arrays_of(result.arrays)["weight"]).sum() > 0
    weights = {(e.staleness, e.weight == 0) for e in log if e.kind == "aggregate"}
    assert (0, False) in weights
    assert all(tau > 0 for tau, nothing in weights if nothing)
