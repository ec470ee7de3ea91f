"""A run that is stopped after any event and resumed is the run that was never stopped."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedraw import ASYNCHRONOUS, FedBuff, build_strategy
from fedraw.clock import WallClock
from fedraw.errors import CheckpointError
from tests.fedraw.toy import (
    NodesOnly,
    arrays_of,
    check_accounts,
    linear_app,
    number,
    of_kind,
    random_clock,
    start,
    through_json,
)


class StopHereError(Exception):
    """Stands for a kill of the server."""


VARIANTS = {
    **{name: (name, {}) for name in ASYNCHRONOUS},
    "fedraw mean": ("fedraw", {"keep": "mean", "rarity": "max"}),
    "fedraw updates": ("fedraw", {"label_source": "updates"}),
    "fedbuff random": ("fedbuff", {"dispatch": "random", "fraction_evaluate": 0.5, "evaluate_every": 2}),
}
VERSIONS = 7


def build(variant, **more):
    name, own = VARIANTS[variant]
    sized = {"buffer_size": 3} if ASYNCHRONOUS[name].buffered else {}
    return build_strategy(
        name, clock=random_clock(), concurrency=3, max_staleness=3, retry_after=0.7, **sized, **own, **more
    )


def troubled_app():
    """Return clients with coverage, one of which fails now and then."""
    return linear_app(coverage=True, fail=lambda part, job: part == 1 and job % 3 == 1)


def run(variant, stop_after=None, state=None):
    """Run, stop by an exception after so many steps, and return log, result and last state."""
    log, steps, states = [], [0], []

    def on_step(strategy):
        steps[0] += 1
        if steps[0] == stop_after:
            states.append(through_json(strategy.state_dict()))
            raise StopHereError

    strategy = build(variant, events=log, on_step=on_step)
    if state is not None:
        strategy.load_state(*state)
    try:
        result = start(strategy, clients=5, app=troubled_app(), versions=VERSIONS)
    except StopHereError:
        return log, None, states[0], steps[0]
    return log, result, None, steps[0]


def outcome(result):
    metrics = {v: dict(m) for v, m in result.train_metrics_clientapp.items()}
    evaluated = {v: dict(m) for v, m in result.evaluate_metrics_clientapp.items()}
    influence = {key: value for key, value in result.influence.items() if key != "seconds_per_flush"}
    arrays = {key: array.tolist() for key, array in arrays_of(result.arrays).items()}
    return arrays, metrics, evaluated, influence


WHOLE = {}


@given(data=st.data())
@settings(max_examples=4, deadline=None)
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_stop_after_any_event_leaves_log_and_arrays_as_they_are(variant, data):
    if variant not in WHOLE:
        WHOLE[variant] = run(variant)
    log, result, _, steps = WHOLE[variant]
    stop = data.draw(st.integers(1, steps - 1))
    before, _, state, _ = run(variant, stop_after=stop)
    after, resumed, _, _ = run(variant, state=state)
    assert before + after == log
    assert outcome(resumed) == outcome(result)
    check_accounts(log, result.influence)


def test_every_single_event_can_be_the_last_of_a_run_without_messages():
    def go(stop_after=None, state=None):
        log, states = [], []

        def on_step(strategy):
            if len(log) >= (stop_after or 10**9):
                states.append(through_json(strategy.state_dict()))
                raise StopHereError

        strategy = build("fedraw", timing_only=True, events=log, on_step=on_step)
        if state:
            strategy.load_state(*state)
        try:
            start(strategy, grid=NodesOnly(6), versions=5)
        except StopHereError:
            return log, states[0]
        return log, None

    log, _ = go()
    for stop in range(1, len(log) - 3):
        before, state = go(stop_after=stop)
        after, _ = go(state=state)
        assert before + after == log


def test_a_finished_run_can_be_made_longer():
    def go(versions, state=None):
        log = []
        strategy = build("fedraw", events=log)
        if state:
            strategy.load_state(*state)
        result = start(strategy, clients=5, app=troubled_app(), versions=versions)
        return [e for e in log if e.kind not in ("leave", "abandon")], result, strategy.state_dict()

    short_log, _, state = go(4)
    more_log, longer, _ = go(VERSIONS, through_json(state))
    log, whole, _ = go(VERSIONS)
    assert short_log + more_log == log
    assert outcome(longer) == outcome(whole)


def test_a_resumed_run_evaluates_the_start_only_once():
    seen = []
    strategy = build("fedbuff")
    start(strategy, versions=2, evaluate_fn=lambda version, arrays: seen.append(version))
    again = build("fedbuff")
    again.load_state(*through_json(strategy.state_dict()))
    start(again, versions=4, evaluate_fn=lambda version, arrays: seen.append(version))
    assert seen == [0, 1, 2, 3, 4]


def test_a_strategy_starts_afresh_without_a_checkpoint():
    strategy = build("ca2fl")
    first = outcome(start(strategy, versions=3))
    assert outcome(start(strategy, versions=3)) == first


def test_on_a_wall_clock_jobs_in_flight_are_lost_and_counted():
    log = []
    strategy = FedBuff(clock=WallClock(0.001, 0.01), buffer_size=2, events=log)
    start(strategy, versions=3)
    arrays, state = through_json(strategy.state_dict())
    lost = len(state["jobs"])
    again = FedBuff(clock=WallClock(0.001, 0.01), buffer_size=2, events=log)
    again.load_state(arrays, state)
    result = start(again, versions=6)
    assert again.version == 6
    times = [event.time for event in log]
    assert times == sorted(times)
    abandoned = of_kind(log, "abandon")
    assert result.influence["abandoned_jobs"] == len(abandoned)
    assert len(abandoned) >= lost


def test_a_checkpoint_of_another_strategy_or_model_is_refused():
    strategy = FedBuff(clock=random_clock())
    start(strategy, versions=2)
    state = strategy.state_dict()
    with pytest.raises(CheckpointError, match="of FedBuff, this is FedRAW"):
        build("fedraw").load_state(*state)
    other = FedBuff(clock=random_clock())
    other.load_state(*state)
    with pytest.raises(CheckpointError, match="shape"):
        start(other, arrays=number(), versions=3)
    with pytest.raises(CheckpointError, match="no run"):
        FedBuff().state_dict()


def test_state_is_made_of_arrays_and_plain_json():
    strategy = build("ca2fl")
    start(strategy, clients=5, versions=3)
    arrays, state = strategy.state_dict()
    assert all(isinstance(array, np.ndarray) for array in arrays.values())
    assert through_json((arrays, state))[1] == state
