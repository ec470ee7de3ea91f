"""Flower's synchronous strategies with plain averages of buffers."""

from dataclasses import fields

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedraw.errors import OptionError, SettingError, UnknownNameError, WeightError
from fedraw.names import look_up
from fedraw.registry import SYNCHRONOUS
from tests.inprocess import InProcessGrid

NAMES = list(SYNCHRONOUS)


def client_app(examples):
    """Clients that answer with values that depend on their partition alone."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        part = int(context.node_config["partition-id"])
        arrays = {
            "weight": np.full((2, 3), part + 1, np.float32),
            "bn.running_var": np.full(3, 0.01 * (part + 1), np.float32),
            "bn.num_batches_tracked": np.array(10 + part, np.int64),
        }
        record = ArrayRecord({key: Array(value) for key, value in arrays.items()})
        metrics = MetricRecord({"num-examples": examples[part], "loss": 1.0})
        return Message(RecordDict({"arrays": record, "metrics": metrics}), reply_to=message)

    return app


def initial():
    return ArrayRecord(
        {
            "weight": Array(np.zeros((2, 3), np.float32)),
            "bn.running_var": Array(np.ones(3, np.float32)),
            "bn.num_batches_tracked": Array(np.array(0, np.int64)),
        }
    )


OPTIONS = {"proximal_mu": 0.1, "server_lr": 0.1}


def build(name, **settings):
    """Build a strategy as a configuration does, from its options and the settings of the run."""
    kind = look_up(SYNCHRONOUS, name, "strategy")
    settings = OPTIONS | settings
    options = {each.name: settings.pop(each.name) for each in fields(kind.Options) if each.name in settings}
    own = {key: value for key, value in settings.items() if key not in OPTIONS}
    return kind.configured(kind.Options(**options), own, clients=4)


def run(name, examples, rounds=2, **settings):
    grid = InProcessGrid(client_app(examples), len(examples))
    strategy = build(name, **settings)
    return strategy.start(grid, initial(), num_rounds=rounds), grid


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("keys", [None, ["bn.running_var", "bn.num_batches_tracked"]])
def test_buffers_are_plain_averages_and_dtypes_are_kept(name, keys):
    result, _ = run(name, [1, 3], buffer_keys=keys)
    arrays = {key: value.numpy() for key, value in result.arrays.items()}
    assert arrays["weight"].dtype == np.float32
    np.testing.assert_allclose(arrays["bn.running_var"], 0.0175, rtol=1e-6)
    assert arrays["bn.running_var"].dtype == np.float32
    assert arrays["bn.num_batches_tracked"].dtype == np.int64
    assert arrays["bn.num_batches_tracked"] == 11  # 10.75
    assert arrays["bn.num_batches_tracked"].shape == ()


def test_fedavg_and_fedprox_weigh_by_examples_and_fedprox_sends_its_term():
    for name in ("fedavg", "fedprox"):
        result, grid = run(name, [1, 3])
        np.testing.assert_allclose(result.arrays["weight"].numpy(), 1.75)
        assert grid.sent[0].content["config"].get("proximal-mu") == (0.1 if name == "fedprox" else None)


@pytest.mark.parametrize("name", ["fedadam", "fedyogi"])
def test_the_adaptive_step_moves_parameters_by_the_server_learning_rate(name):
    small, _ = run(name, [1, 1], rounds=1, server_lr=0.01)
    large, _ = run(name, [1, 1], rounds=1, server_lr=0.1)
    ratio = large.arrays["weight"].numpy() / small.arrays["weight"].numpy()
    np.testing.assert_allclose(ratio, 10.0, rtol=1e-4)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("examples", [[0, 0], [-1, 3], [float("nan"), 1.0]])
def test_weights_without_an_average_are_one_clear_error(name, examples):
    with pytest.raises(WeightError, match="num-examples"):
        run(name, examples, rounds=1)


@pytest.mark.parametrize("name", NAMES)
def test_clients_that_all_fail_leave_the_arrays_alone(name):
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        raise ValueError("boom")

    strategy = build(name)
    arrays, metrics = strategy.aggregate_train(
        1,
        InProcessGrid(app, 2).send_and_receive(
            strategy.configure_train(1, initial(), ConfigRecord(), InProcessGrid(app, 2))
        ),
    )
    assert arrays is None
    assert metrics is None


@pytest.mark.parametrize("name", NAMES)
def test_a_reply_that_cannot_be_read_is_left_out_with_the_reason(name, caplog):
    crafted = b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 0xFFFF

    def sent(last):
        grid = InProcessGrid(client_app([1, 3, 5]), 3)
        strategy = build(name, sites={1002: "the-third"})
        replies = grid.send_and_receive(strategy.configure_train(1, initial(), ConfigRecord(), grid))
        replies.sort(key=lambda reply: reply.metadata.src_node_id)
        if last:
            replies[-1].content["arrays"]["weight"] = Array("float32", (2, 3), "numpy.ndarray", crafted)
        else:
            del replies[-1]
        strategy.current_arrays = {key: array.numpy() for key, array in initial().items()}
        return strategy.aggregate_train(1, replies)[0]

    with caplog.at_level("WARNING", "flwr.fedraw"):
        left_out, absent = sent(last=True), sent(last=False)
    assert "round 1: the reply of the-third is left out: the array 'weight' cannot be read" in caplog.text
    for key, array in absent.items():
        assert left_out[key].data == array.data


def test_a_share_of_the_nodes_takes_part_by_seed_and_site_name():
    names = ["a", "b", "c", "d", "e"]

    def sent(node_of_site, seed):
        strategy = build(
            "fedavg",
            participation=0.4,
            seed=seed,
            sites={node: site for site, node in node_of_site.items()},
        )
        grid = InProcessGrid(client_app([1] * 5), 5)
        site_of = {node: site for site, node in node_of_site.items()}
        return [
            [
                site_of[m.metadata.dst_node_id]
                for m in strategy.configure_train(i, initial(), ConfigRecord(), grid)
            ]
            for i in range(1, 9)
        ]

    forward = sent({name: 1000 + i for i, name in enumerate(names)}, seed=1)
    backward = sent({name: 1004 - i for i, name in enumerate(names)}, seed=1)
    assert forward == backward
    assert all(len(chosen) == 2 for chosen in forward)
    assert forward != sent({name: 1000 + i for i, name in enumerate(names)}, seed=2)


def test_unknown_names_and_settings_are_refused():
    with pytest.raises(UnknownNameError, match="fedavg"):
        build("fedavgg")
    with pytest.raises(SettingError, match="participation is 0"):
        SYNCHRONOUS["fedavg"](participation=0.0)
    with pytest.raises(OptionError, match=r"participation = 0\.0 must be above 0 and at most 1"):
        build("fedavg", participation=0.0)
