"""What a foreign app gets from the wheel: the strategies by name, on flwr and numpy alone."""

import ast
import sys
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
    Result,
    Strategy,
)

import fedraw
from fedraw import (
    ASYNCHRONOUS,
    STRATEGIES,
    AsynchronousStrategy,
    FedBuff,
    FedRAW,
    build_strategy,
)
from fedraw.clock import VirtualClock
from fedraw.errors import StrategyError, UnknownNameError
from fedraw.staleness import Constant
from tests.inprocess import InProcessGrid

PACKAGE = Path(fedraw.__file__).parent


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.stem)
def test_modules_import_flwr_numpy_and_the_standard_library_only(path):
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module]
        for name in names:
            package = name.split(".")[0]
            assert package in {"flwr", "numpy", "fedraw"} or package in sys.stdlib_module_names


@pytest.mark.parametrize("name", list(STRATEGIES))
def test_every_name_builds_a_strategy(name):
    assert isinstance(build_strategy(name), Strategy)


def test_every_asynchronous_strategy_has_a_name():
    def below(cls):
        return {cls} | {each for sub in cls.__subclasses__() for each in below(sub)}

    written = {cls for cls in below(AsynchronousStrategy) if cls.__module__.startswith("fedraw.")}
    assert written - {AsynchronousStrategy} == set(ASYNCHRONOUS.values())


def test_an_unknown_name_is_an_error_with_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'fedbuff'"):
        build_strategy("fedbuf")


# --- a foreign app in this process


class Net:
    """A foreign model: a softmax classifier, as far as a server needs to know it."""

    def state_dict(self):
        return OrderedDict(weight=torch.zeros(3, 4), bias=torch.zeros(3))


def foreign_client(coverage, mods=()):
    """Return a ClientApp as a tutorial has it; labels 0 and 1 are common, 2 is at the first client alone."""
    app = ClientApp(mods=list(mods))

    @app.train()
    def train(message: Message, context: Context) -> Message:
        part = int(context.node_config["partition-id"])
        rng = np.random.default_rng(part)
        labels = rng.integers(0, 3 if part == 0 else 2, 40)
        x = np.eye(3, 4)[labels] + rng.normal(scale=0.1, size=(40, 4))
        state = message.content["arrays"].to_torch_state_dict()
        weight, bias = state["weight"].numpy(), state["bias"].numpy()
        for _ in range(5):
            logits = x @ weight.T + bias
            wrong = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True) - np.eye(3)[labels]
            weight, bias = weight - 0.5 * wrong.T @ x / 40, bias - 0.5 * wrong.mean(axis=0)
        metrics = {"num-examples": 40, "loss": 0.0}
        if coverage:
            metrics["label-coverage"] = [int((labels == label).any()) for label in range(3)]
        state = {"weight": torch.tensor(weight).float(), "bias": torch.tensor(bias).float()}
        content = RecordDict({"arrays": ArrayRecord(state), "metrics": MetricRecord(metrics)})
        return Message(content, reply_to=message)

    return app


def correct_on_each_label(result):
    """Return for each label whether its plainest example is recognised."""
    state = result.arrays.to_torch_state_dict()
    logits = np.eye(3, 4) @ state["weight"].numpy().T + state["bias"].numpy()
    return (logits.argmax(axis=1) == np.arange(3)).tolist()


@pytest.mark.parametrize("coverage", [True, False])
@pytest.mark.parametrize("strategy", [FedAvg, FedBuff, FedRAW])
def test_fedavg_of_a_foreign_app_is_swapped(strategy, coverage):
    settings = {} if strategy is FedAvg else {"buffer_size": 3, "concurrency": 4}
    grid = InProcessGrid(foreign_client(coverage), 4)
    arrays = ArrayRecord(Net().state_dict())
    own = {} if strategy is FedAvg else {"staleness": Constant()}
    result = strategy(fraction_evaluate=0.0, **settings, **own).start(grid, arrays, num_rounds=12)
    assert isinstance(result, Result)
    assert list(result.arrays) == ["weight", "bias"]
    assert sorted(result.train_metrics_clientapp) == list(range(1, 13))
    assert correct_on_each_label(result)[:2] == [True, True]


def test_local_differential_privacy_is_a_mod_of_the_client():
    mods = [LocalDpMod(clipping_norm=1.0, sensitivity=1e-3, epsilon=1.0, delta=1e-3)]
    plain, private = (
        FedRAW(buffer_size=3, concurrency=4, clock=VirtualClock()).start(
            InProcessGrid(foreign_client(True, own), 4), ArrayRecord(Net().state_dict()), num_rounds=12
        )
        for own in ([], mods)
    )
    assert correct_on_each_label(private)[:2] == [True, True]
    assert not np.array_equal(*(result.arrays["weight"].numpy() for result in (plain, private)))
    wrapped = DifferentialPrivacyServerSideFixedClipping(FedRAW(), 0.1, 1.0, 4)
    with pytest.raises(StrategyError, match="LocalDpMod"):
        wrapped.start(InProcessGrid(foreign_client(True), 4), ArrayRecord(Net().state_dict()), num_rounds=1)
