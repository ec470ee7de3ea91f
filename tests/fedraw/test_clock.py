"""Delays, availability and the virtual clock."""

import functools
import math

import numpy as np
import pytest

from fedraw.clock import Job, Tick, TickKind, VirtualClock
from fedraw.delays import (
    Bernoulli,
    Constant,
    FromList,
    LogNormal,
    Pareto,
    RareSlow,
    Trace,
    build_availability,
    build_delays,
)
from fedraw.errors import DelayError, SettingError, UnknownNameError
from fedraw.randomness import generator


def rng(*keys):
    return functools.partial(generator, 0, "test", *keys)


def job(site="a", number=0, sequence=1, started=0.0, deadline=math.inf):
    return Job(site, 1, number, 0, sequence, started, deadline)


def test_the_duration_formula():
    model = Constant(
        seconds_per_example=0.5, communication=3.0, epochs=2, examples={"a": 10}, speeds={"a": 5.0}
    )
    assert model.duration("a", 0, rng()) == 0.5 * 10 * 2 / 5.0 + 3.0
    assert model.duration("b", 0, rng()) == 0.5 * 1 * 2 + 3.0


def test_noise_touches_computation_alone():
    noises = [LogNormal(sigma=0.7).duration("a", i, rng(i)) for i in range(2000)]
    assert np.median(noises) == pytest.approx(1.0, abs=0.05)
    assert np.std(np.log(noises)) == pytest.approx(0.7, abs=0.05)
    tails = [Pareto(shape=2.0).duration("a", i, rng(i)) for i in range(2000)]
    assert min(tails) >= 1.0
    assert np.median(tails) == pytest.approx(2**0.5, abs=0.1)
    late = LogNormal(sigma=0.7, communication=100.0).duration("a", 0, rng(0))
    assert late == pytest.approx(noises[0] + 100.0)


def test_rare_sites_are_slower():
    model = RareSlow(rare_sites=["a"], slow_factor=4.0, speeds={"a": 2.0})
    assert model.duration("a", 0, rng()) == 2.0
    assert model.duration("b", 0, rng()) == 1.0


def test_a_list_of_durations_starts_again_at_its_end(tmp_path):
    path = tmp_path / "delays.csv"
    path.write_text("site,seconds\na,1.5\nb,7\na,2.5\n")
    model = build_delays("from-list", file=path)
    assert [model.duration("a", i, rng()) for i in range(3)] == [1.5, 2.5, 1.5]
    with pytest.raises(DelayError, match="no row of site 'c'; it has a, b"):
        model.duration("c", 0, rng())


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("a,1\n", "the header is"),
        ("site,seconds\na,fast\n", "line 2: seconds is 'fast'"),
        ("site,seconds\na,1\nb,0\n", r"line 3: seconds is 0\.0"),
        ("site,seconds\na,inf\n", "line 2: seconds is inf"),
        (None, "cannot be read"),
    ],
)
def test_a_bad_file_of_delays_is_named(tmp_path, text, match):
    path = tmp_path / "delays.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(DelayError, match=match) as caught:
        FromList(file=path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Constant(seconds_per_example=0.0), "seconds_per_example is 0"),
        (lambda: Constant(communication=-1.0), "communication is -1"),
        (lambda: Constant(speeds={"a": 0.0}), "speed of 'a' is 0"),
        (lambda: LogNormal(sigma=-1.0), "sigma is -1"),
        (lambda: Pareto(shape=0.0), "shape is 0"),
        (lambda: RareSlow(rare_sites=[], slow_factor=math.inf), "slow_factor is inf"),
        (lambda: FromList(), "one of the two"),
        (lambda: Trace(), "one of the two"),
        (lambda: Bernoulli(probability=0.0), "is 0.0"),
        (lambda: Bernoulli(probability=0.5, retry_after=0.0), "retry_after is 0"),
    ],
)
def test_settings_outside_their_range_are_refused(make, match):
    with pytest.raises(SettingError, match=match):
        make()


def test_names_are_looked_up():
    assert isinstance(build_delays("pareto", shape=1.5), Pareto)
    assert isinstance(build_availability("bernoulli", probability=0.5), Bernoulli)
    with pytest.raises(UnknownNameError, match="did you mean 'lognormal'"):
        build_delays("log-normal")


def test_availability_of_a_trace(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("site,on,off\na,10,20\na,0,5\nb,3,\n")
    trace = Trace(file=path)
    asked = [trace.available_at("a", now, rng()) for now in (0, 4.9, 5, 9, 19, 20)]
    assert asked == [0, 4.9, 10, 10, 19, math.inf]
    assert trace.available_at("b", 1, rng()) == 3
    assert trace.available_at("b", 1e9, rng()) == 1e9
    assert trace.available_at("not there", 7, rng()) == 7
    with pytest.raises(DelayError, match=r"on 3\.0 is not before off 3\.0"):
        Trace(intervals={"a": [(3.0, 3.0)]})
    path.write_text("site,on,off\na,10,20\na,0,11\n")
    overlap = r"trace\.csv: .*'a': the times from 0\.0 to 11\.0 and from 10\.0 on overlap"
    with pytest.raises(DelayError, match=overlap):
        Trace(file=path)


def test_availability_by_chance():
    model = Bernoulli(probability=0.25, retry_after=2.0)
    asked = [model.available_at("a", 1.0, rng(i)) for i in range(2000)]
    assert set(asked) == {1.0, 3.0}
    assert asked.count(1.0) / 2000 == pytest.approx(0.25, abs=0.03)


def test_ticks_go_by_time_kind_site_and_sequence():
    clock = VirtualClock(FromList(seconds={"a": [2.0], "b": [1.0], "c": [2.0]}))
    clock.wake(Tick(2.0, TickKind.WAKE, "a", 1))
    jobs = {i: job(site, 0, i) for i, site in ((2, "c"), (3, "a"), (4, "b"), (5, "a"))}
    for each in jobs.values():
        clock.begin(each)
    order = []
    while clock.pending():
        tick, reply = clock.next(None, jobs, 0.0)
        assert clock.now == tick.time
        assert reply is None
        order.append((tick.time, tick.kind, tick.site, tick.sequence, clock.more_now()))
    arrival = TickKind.ARRIVAL
    assert order == [
        (1.0, arrival, "b", 4, False),
        (2.0, arrival, "a", 3, True),
        (2.0, arrival, "a", 5, True),
        (2.0, arrival, "c", 2, True),
        (2.0, TickKind.WAKE, "a", 1, False),
    ]


def test_draws_depend_on_seed_site_and_job_alone():
    def times(seed, order):
        clock = VirtualClock(LogNormal(), seed=seed)
        for sequence, (site, number) in enumerate(order):
            clock.begin(job(site, number, sequence))
        return sorted((tick[2], tick[0]) for tick in clock.state()["planned"])

    order = [("a", 0), ("a", 1), ("b", 0)]
    assert times(1, order) == times(1, order[::-1])
    assert times(1, order) != times(2, order)
    assert len({time for _, time in times(1, order)}) == 3


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_a_duration_that_is_none_is_refused(seconds):
    clock = VirtualClock(FromList(seconds={"a": [seconds]}))
    with pytest.raises(DelayError, match="job 0 of site 'a' would take"):
        clock.begin(job())


def test_generators_differ_by_purpose_keys_and_seed():
    draws = {
        generator(seed, purpose, *keys).random()
        for seed, purpose, keys in [
            (0, "delay", ("1", 1)),
            (0, "delay", (1, 1)),
            (0, "delay", ("1", 2)),
            (0, "other", ("1", 1)),
            (1, "delay", ("1", 1)),
        ]
    }
    assert len(draws) == 5
    assert generator(0, "delay", "a").random() == generator(0, "delay", "a").random()
