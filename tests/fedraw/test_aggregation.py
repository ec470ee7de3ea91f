"""The arithmetic of a flush."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as any_array

from fedraw import aggregation
from fedraw.arrays import is_buffer, read_array, readable, restore_dtype
from fedraw.errors import SettingError, UnknownNameError, WeightError
from fedraw.metrics import average, with_examples
from fedraw.run.buffer import Buffer, Entry
from fedraw.run.events import Event, as_callback
from fedraw.run.versions import VersionStore
from fedraw.staleness import Constant, Hinge, Polynomial, build_staleness, staleness_factors

taus = st.integers(0, 10_000)


def test_coefficients_by_hand():
    weights, factors = np.array([1.0, 3.0]), np.array([1.0, 0.5])
    np.testing.assert_allclose(aggregation.coefficients(weights, factors, "entries", 4), [0.25, 0.375])
    np.testing.assert_allclose(aggregation.coefficients(weights, factors, "buffer", 4), [0.125, 0.1875])
    np.testing.assert_allclose(aggregation.coefficients(weights, factors, "weights", 4), [0.4, 0.6])
    assert aggregation.coefficients(weights, np.zeros(2), "weights", 4).tolist() == [0, 0]


@given(st.lists(st.floats(0, 1e300), min_size=1, max_size=9))
def test_normalised_weights_are_finite_and_sum_to_one(weights):
    shares = aggregation.normalised(np.array(weights))
    assert np.isfinite(shares).all()
    assert shares.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("weights", [[-1.0, 2.0], [np.nan], [np.inf, 1.0]])
def test_weights_without_a_meaning_are_refused(weights):
    with pytest.raises(WeightError, match="finite and not negative"):
        aggregation.normalised(np.array(weights))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("shape", [(), (0,), (3, 2), (2, aggregation.SLICE - 1)])
def test_weighted_sum_is_the_sum_in_a_wide_dtype(dtype, shape):
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=shape).astype(dtype) for _ in range(4)]
    factors = [0.1, -2.0, 0.0, 3.0]
    total = aggregation.weighted_sum(factors, arrays)
    assert total.dtype == (np.float64 if dtype is np.float64 else np.float32)
    expected = sum(f * a.astype(np.float64) for f, a in zip(factors, arrays, strict=True))
    np.testing.assert_allclose(total, expected, atol=1e-5)


def test_weighted_sum_takes_arrays_in_any_memory_order():
    array = np.arange(6.0).reshape(2, 3)
    total = aggregation.weighted_sum([1.0, 2.0], [array.T, np.asfortranarray(array.T)])
    np.testing.assert_array_equal(total, 3 * array.T)


@given(
    any_array(np.float32, 4, elements=st.floats(0, 1e6, width=32)),
    st.lists(any_array(np.float32, 4, elements=st.floats(0, 1e6, width=32)), min_size=1, max_size=5),
    st.floats(1e-3, 100),
    st.data(),
)
@settings(deadline=None)
def test_buffers_stay_between_the_smallest_and_the_largest(current, others, server_lr, data):
    factors = np.array([data.draw(st.floats(0, 1)) for _ in others])
    values = [{"var": other, "count": np.array(i, np.int32)} for i, other in enumerate(others)]
    mixed = aggregation.mix_buffers(
        {"var": current, "count": np.array(3, np.int32)}, values, factors, server_lr
    )
    lowest, highest = np.min([current, *others], axis=0), np.max([current, *others], axis=0)
    assert (mixed["var"] >= lowest - 1e-5 * lowest).all()
    assert (mixed["var"] <= highest + 1e-5 * highest).all()
    assert mixed["var"].dtype == np.float32
    assert mixed["count"] == (max(3, len(others) - 1) if factors.sum() > 0 else 3)
    assert mixed["count"].dtype == np.int32


def test_buffers_by_hand():
    current = {"var": np.array([1.0, 1.0]), "seen": np.array([True, False])}
    values = [
        {"var": np.array([2.0, 5.0]), "seen": np.array([False, False])},
        {"var": np.array([4.0, 5.0]), "seen": np.array([False, True])},
    ]
    mixed = aggregation.mix_buffers(current, values, np.array([0.2, 0.2]), 1.0)
    np.testing.assert_allclose(mixed["var"], [0.6 + 0.4 * 3, 0.6 + 0.4 * 5])
    assert mixed["seen"].tolist() == [True, True]
    large = aggregation.mix_buffers(current, values, np.array([0.2, 0.2]), 9.0)
    np.testing.assert_allclose(large["var"], [3.0, 5.0])


def test_add_scaled_keeps_the_dtype():
    step = np.array([0.1], np.float32)
    assert aggregation.add_scaled(np.array([1.0], np.float16), step, 2.0).dtype == np.float16
    assert aggregation.add_scaled(np.array([1.0]), np.array([0.25]), 2.0).tolist() == [1.5]


@pytest.mark.parametrize("dtype", ["float16", "<f4", ">f8", "int64", "bool", "uint8", "complex64", "<U3"])
@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3), (70_000, 1, 2)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_are_read_as_flower_reads_them(dtype, shape, order):
    numbers = np.arange(np.prod(shape, dtype=int)) % 100
    array = np.asarray(numbers.reshape(shape), dtype=dtype, order=order)
    sent = Array(array)
    got = read_array(sent)
    np.testing.assert_array_equal(got, sent.numpy())
    assert (got.dtype, got.shape) == (array.dtype, array.shape)


def crafted(header, size=0):
    """Return data of an array with a header of one's own."""
    return b"\x93NUMPY\x02\x00" + len(header).to_bytes(4, "little") + header.encode() + bytes(size)


@pytest.mark.parametrize(
    "broken",
    [
        Array("float32", (3,), "numpy.ndarray", Array(np.zeros(3)).data),
        Array("float64", (4,), "numpy.ndarray", Array(np.zeros(3)).data),
        Array("float64", (3,), "numpy.ndarray", Array(np.zeros(3)).data[:-1]),
        Array("float64", (0,), "numpy.ndarray", b""),
        Array("float64", (3,), "bytes", Array(np.zeros(3)).data),
        Array("no dtype", (3,), "numpy.ndarray", Array(np.zeros(3)).data),
        Array("float64", (3,), "numpy.ndarray", crafted("(" * 5000)),
        Array("float64", (3,), "numpy.ndarray", crafted("{'descr': '<f8', 'shape': " + "-" * 9000)),
        Array("float64", (-3,), "numpy.ndarray", crafted("{'descr': '<f8'}")),
        Array("object", (3,), "numpy.ndarray", crafted("{'descr': '|O'}", size=24)),
    ],
)
def test_data_that_are_no_array_are_refused(broken):
    with pytest.raises((TypeError, ValueError)):
        read_array(broken)
    with pytest.raises(ValueError, match="the array 'w' cannot be read"):
        readable(ArrayRecord({"w": broken}))


def test_a_header_that_numpy_would_choke_on_is_not_parsed():
    data = crafted("{'descr': '<f8', " + "(" * 9000, size=8)
    assert read_array(Array("float64", (1,), "numpy.ndarray", data)).tolist() == [0.0]


def test_names_of_buffers():
    assert is_buffer("layer1.0.bn1.running_var", None)
    assert not is_buffer("layer1.0.bn1.weight", None)
    assert is_buffer("ema", ["ema"])
    assert not is_buffer("bn.running_var", ["ema"])
    assert restore_dtype(np.array(2.6), np.dtype(np.int64)) == 3


# Staleness


@pytest.mark.parametrize(
    "function",
    [Constant(), Polynomial(0.0), Polynomial(0.5), Polynomial(3.0), Hinge(0.0, 0.0), Hinge(10.0, 6.0)],
)
@given(tau=taus, later=taus)
def test_staleness_is_one_at_first_and_never_increases(function, tau, later):
    assert function(0) == 1.0
    early, late = sorted([tau, later])
    assert 0.0 <= function(late) <= function(early) <= 1.0


def test_staleness_by_hand():
    assert Polynomial(0.5)(3) == pytest.approx(0.5)
    assert [Hinge(2.0, 3.0)(tau) for tau in (3, 4, 5)] == [1.0, pytest.approx(1 / 3), pytest.approx(1 / 5)]
    assert build_staleness("polynomial", exponent=1.0)(1) == 0.5
    assert staleness_factors(Polynomial(1.0), [0, 1]).tolist() == [1.0, 0.5]


def test_staleness_outside_its_range_is_refused():
    with pytest.raises(SettingError, match="exponent is -1"):
        Polynomial(-1.0)
    with pytest.raises(SettingError, match="slope -1"):
        Hinge(slope=-1.0)
    with pytest.raises(SettingError, match=r"\[0, 1\]"):
        staleness_factors(lambda tau: 1.0 + tau, [0, 1])
    with pytest.raises(UnknownNameError, match="did you mean 'hinge'"):
        build_staleness("hing")


# Buffer


def entry(site, version=0, sequence=0, value=0.0, **more):
    return Entry(site, 0, version, sequence, {"w": np.array([value])}, {"n": np.array(int(value))}, **more)


def test_a_second_update_of_a_client_by_kind():
    old, newer, staler = entry("a", 5, 1, 1.0), entry("a", 5, 2, 2.0), entry("a", 4, 3, 3.0)
    off = Buffer("off")
    assert off.add(old) is off.add(newer) is None
    assert len(off) == 2
    newest = Buffer("newest")
    assert newest.add(old) is None
    assert newest.add(staler) is old
    assert newest.take() == [staler]
    freshest = Buffer("freshest")
    freshest.add(old)
    assert freshest.add(newer) is old
    assert freshest.add(staler) is staler
    assert freshest.take() == [newer]


def test_the_mean_of_a_clients_updates_is_a_running_one():
    buffer = Buffer("mean")
    for sequence, (version, value) in enumerate([(3, 1.0), (5, 3.0), (4, 8.0)]):
        buffer.add(entry("a", version, sequence, value))
    (merged,) = buffer.take()
    assert merged.deltas["w"].tolist() == [4.0]
    assert merged.values["n"] == 8
    assert (merged.merged, merged.version, merged.sequence) == (3, 5, 2)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5)), max_size=20))
@pytest.mark.parametrize("keep", ["newest", "freshest", "mean"])
def test_one_place_a_client(keep, arrivals):
    buffer = Buffer(keep)
    displaced = [
        buffer.add(entry(site, version, i, 1.0)) is not None for i, (site, version) in enumerate(arrivals)
    ]
    assert len(buffer) == len({site for site, _ in arrivals}) == len(arrivals) - sum(displaced)
    sites = [e.site for e in buffer.take()]
    assert sites == sorted(sites)
    assert len(buffer) == 0


# Versions


def test_a_version_is_kept_while_a_job_needs_it():
    store = VersionStore({"w": np.zeros(1)})
    store.acquire(0)
    store.acquire(0)
    assert store.record(0) is store.record(0)
    assert store.publish({"w": np.ones(1)}) == 1
    assert store.publish({"w": np.full(1, 2.0)}) == 2
    assert store.kept() == [0, 2]
    store.release(0)
    assert 0 in store
    store.release(0)
    assert store.kept() == [2]
    store.acquire(2)
    store.release(2)
    assert store.kept() == [2]


# Metrics and events


def test_metrics_are_averaged_by_examples_where_all_have_them():
    metrics = [
        {"num-examples": 1, "loss": 1.0, "label-coverage": [1, 0], "only": 3},
        {"num-examples": 3, "loss": 5.0, "label-coverage": [1, 1]},
    ]
    assert dict(average(metrics, "num-examples")) == {"loss": 4.0}
    assert dict(average([{"loss": 1.0}, {"loss": 2.0}], "num-examples")) == {"loss": 1.5}
    assert dict(average([{"num-examples": 0, "loss": 1.0}], "num-examples")) == {"loss": 1.0}
    for weight in (-1, float("nan"), float("inf"), [5]):
        metrics = [{"num-examples": weight, "loss": 1.0}, {"num-examples": 3, "loss": 2.0}]
        assert dict(average(metrics, "num-examples")) == {"loss": 1.5}


def test_events_go_to_a_list_a_function_or_nowhere():
    event = Event(1.0, "publish", "", None, 1)
    kept, called = [], []
    as_callback(kept)(event)
    as_callback(called.append)(event)
    as_callback(None)(event)
    assert kept == called == [event]


@pytest.mark.usefixtures("task_identity")
def test_who_measured_nothing_is_not_averaged() -> None:
    def reply(**metrics: float) -> Message:
        request = Message(RecordDict(), 1, "evaluate")
        return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=request)

    some, none, unweighted = reply(n=3, loss=1.0), reply(n=0, loss=0.0), reply(loss=2.0)
    assert with_examples([some, none, unweighted], "n") == [some, unweighted]
