"""Rounds that are stopped after any one and gone on with, and rounds as Flower runs them."""

import pytest
from flwr.app import MetricRecord
from flwr.serverapp.strategy import Strategy

from fedraw.errors import CheckpointError
from fedraw.registry import SYNCHRONOUS
from tests.fedraw.toy import arrays_of, linear_app, number, start, through_json

ROUNDS = 6


class StopHereError(Exception):
    """Stands for a kill of the server."""


def build(name, on_step=None):
    kind = SYNCHRONOUS[name]
    options = kind.Options(participation=0.6)
    strategy = kind.configured(options, {"fraction_evaluate": 1.0, "seed": 3}, clients=4)
    strategy.on_step = on_step
    return strategy


def run(strategy, rounds=ROUNDS, start_of=None, **settings):
    """Run and return the result as plain values, and the rounds that the server measured."""
    measured = []

    def evaluate(server_round, arrays):
        measured.append(server_round)
        return MetricRecord({"first": float(arrays_of(arrays)["weight"][0])})

    if start_of is not None:
        strategy.start = start_of.start.__get__(strategy)
    settings = {"clients": 5, "app": linear_app(), "versions": rounds, "evaluate_fn": evaluate} | settings
    result = start(strategy, **settings)
    metrics = [
        {server_round: dict(record) for server_round, record in records.items()}
        for records in (
            result.train_metrics_clientapp,
            result.evaluate_metrics_clientapp,
            result.evaluate_metrics_serverapp,
        )
    ]
    return [{key: array.tolist() for key, array in arrays_of(result.arrays).items()}, *metrics], measured


@pytest.mark.parametrize("name", SYNCHRONOUS)
def test_rounds_are_those_of_flower(name):
    assert run(build(name)) == run(build(name), start_of=Strategy)


@pytest.mark.parametrize("stop", range(1, ROUNDS + 1))
@pytest.mark.parametrize("name", SYNCHRONOUS)
def test_a_stop_after_any_round_changes_nothing(name, stop):
    states = []

    def on_step(strategy):
        if strategy.version == stop:
            states.append(through_json(strategy.state_dict()))
            raise StopHereError

    with pytest.raises(StopHereError):
        run(build(name, on_step))
    resumed = build(name)
    resumed.load_state(*states[0])
    outcome, measured = run(resumed)
    assert outcome == run(build(name))[0]
    assert measured == list(range(stop + 1, ROUNDS + 1))
    assert resumed.version == ROUNDS


@pytest.mark.parametrize("name", ["fedavg", "fedadam"])
def test_a_finished_training_can_be_made_longer(name):
    short = build(name)
    run(short, rounds=3)
    longer = build(name)
    longer.load_state(*through_json(short.state_dict()))
    assert run(longer)[0] == run(build(name))[0]


def test_a_state_is_used_once():
    first = build("fedavg")
    run(first, rounds=2)
    strategy = build("fedavg")
    strategy.load_state(*first.state_dict())
    run(strategy)
    assert run(strategy)[1] == list(range(ROUNDS + 1))


def test_a_checkpoint_of_another_strategy_or_model_is_refused():
    with pytest.raises(CheckpointError, match="no run"):
        build("fedavg").state_dict()
    strategy = build("fedavg")
    run(strategy, rounds=1)
    state = strategy.state_dict()
    build("fedavg").load_state(state[0], {**state[1], "strategy": "BufferedFedAvg"})  # as once written
    with pytest.raises(CheckpointError, match="of SteadyFedAvg, this is SteadyFedYogi"):
        build("fedyogi").load_state(*state)
    other = build("fedavg")
    other.load_state(*state)
    with pytest.raises(CheckpointError, match="shape"):
        run(other, arrays=number())
