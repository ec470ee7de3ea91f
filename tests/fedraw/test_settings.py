"""Settings and options of strategies: their names, types, defaults and ranges."""

import inspect
import math
from dataclasses import MISSING, fields
from typing import Any, Unpack, get_type_hints

import pytest
from flwr.serverapp.strategy import FedAvg

from fedraw import ASYNCHRONOUS, STRATEGIES, FedAsync, FedBuff, FedRAW
from fedraw.clock import VirtualClock
from fedraw.errors import OptionError, SettingError
from fedraw.metrics import average_metrics
from fedraw.options import check_options
from fedraw.staleness import Constant, Hinge, Polynomial
from fedraw.strategies.settings import (
    WITHOUT_MEANING,
    AsynchronousSettings,
    BufferedSettings,
    FlowerSettings,
    Settings,
)

FEDAVG = [name for name in inspect.signature(FedAvg).parameters if name != "self"]


# Settings


def test_the_settings_are_the_attributes_and_have_their_types():
    settings, attributes = get_type_hints(BufferedSettings), get_type_hints(Settings)
    assert settings.keys() - set(WITHOUT_MEANING) == attributes.keys() - {"buffered"}
    for name in settings.keys() - set(WITHOUT_MEANING):  # None may stand for the default
        assert settings[name] in (attributes[name], attributes[name] | None), name


def test_the_arguments_of_fedavg_are_all_known():
    assert FlowerSettings.__annotations__.keys() == set(FEDAVG)
    assert set(WITHOUT_MEANING) <= set(FEDAVG)


@pytest.mark.parametrize("name", list(STRATEGIES))
@pytest.mark.parametrize("argument", FEDAVG)
def test_every_strategy_takes_each_argument_of_fedavg(name, argument):
    default = inspect.signature(FedAvg).parameters[argument].default
    strategy = STRATEGIES[name](**{argument: default})
    if default is not None and argument not in WITHOUT_MEANING:
        assert getattr(strategy, argument) == default


def test_arguments_without_a_meaning_are_named_in_one_warning(caplog):
    defaults = {name: inspect.signature(FedAvg).parameters[name].default for name in FEDAVG}
    with caplog.at_level("WARNING", "flwr.fedraw"):
        FedRAW(**defaults)
        (record,) = caplog.records
        assert all(name in record.getMessage() for name in WITHOUT_MEANING)
        caplog.clear()
        FedRAW(fraction_train=0.5)
        (record,) = caplog.records
        assert "so fraction_train of FedAvg does nothing" in record.getMessage()
        caplog.clear()
        FedRAW(min_available_nodes=3, fraction_evaluate=1.0)
        assert not caplog.records


@pytest.mark.parametrize("name", list(ASYNCHRONOUS))
def test_a_misspelt_setting_is_an_error_with_the_nearest(name):
    kind = ASYNCHRONOUS[name]
    with pytest.raises(
        TypeError, match=f"{kind.__name__} has no setting 'concurency'; did you mean 'concurr"
    ):
        kind(concurency=3)


def test_none_is_the_default_where_there_is_one():
    strategy = FedBuff(staleness=None, clock=None, train_metrics_aggr_fn=None, sites=None)
    assert strategy.staleness == Polynomial(0.5)
    assert not strategy.clock.virtual
    assert strategy.train_metrics_aggr_fn is average_metrics
    assert FedBuff().clock is not FedBuff().clock


@pytest.mark.parametrize("name", [name for name, kind in ASYNCHRONOUS.items() if not kind.buffered])
def test_a_buffer_size_without_a_buffer_is_refused(name):
    assert ASYNCHRONOUS[name]().buffer_size == 1
    with pytest.raises(SettingError, match="buffer_size is 3"):
        ASYNCHRONOUS[name](buffer_size=3)


@pytest.mark.parametrize("name", list(ASYNCHRONOUS))
def test_settings_are_typed_keywords_that_an_editor_completes(name):
    kind = ASYNCHRONOUS[name]
    parameters = inspect.signature(kind).parameters
    (rest,) = [each for each in parameters.values() if each.kind is inspect.Parameter.VAR_KEYWORD]
    assert rest.annotation == Unpack[BufferedSettings if kind.buffered else AsynchronousSettings]
    others = [each for each in parameters.values() if each is not rest]
    assert all(each.kind is inspect.Parameter.KEYWORD_ONLY for each in others)
    assert all(each.annotation not in (inspect.Parameter.empty, Any) for each in others)


# Options


@pytest.mark.parametrize("name", list(STRATEGIES))
def test_a_strategy_says_what_it_is_and_what_can_be_set(name):
    kind = STRATEGIES[name]
    first = (kind.__doc__ or "").splitlines()[0]
    assert first.endswith(".")
    assert kind.paper.startswith(("arXiv ", "Wang et al."))
    assert "__doc__" in vars(kind)
    assert kind.buffered == ("buffer_size" in {each.name for each in fields(kind.Options)})
    check_options(kind.Options())
    for each in fields(kind.Options):
        assert each.default is not MISSING
        assert each.metadata["help"]


def test_an_option_is_the_same_at_every_strategy_that_has_it():
    seen = {}
    for kind in STRATEGIES.values():
        for each in fields(kind.Options):
            described = (each.default, each.type, dict(each.metadata))
            assert seen.setdefault(each.name, described) == described


@pytest.mark.parametrize("name", list(STRATEGIES))
def test_values_outside_of_an_options_range_are_refused(name):
    kind = STRATEGIES[name]
    for each in fields(kind.Options):
        limits = each.metadata
        wrong = [math.nan, math.inf] if each.type is float else []
        wrong += [limits["at_least"] - 1] if limits["at_least"] is not None else []
        wrong += [limits["above"]] if limits["above"] is not None else []
        wrong += [limits["at_most"] + 1] if limits["at_most"] is not None else []
        wrong += [limits["below"]] if limits["below"] is not None else []
        wrong += ["nothing"] if limits["choices"] else []
        assert wrong, f"{each.name} has no range"
        for value in wrong:
            with pytest.raises(OptionError, match=f"{each.name} = ") as caught:
                check_options(kind.Options(**{each.name: value}))
            assert caught.value.name == each.name


def test_errors_say_what_is_allowed():
    def message(kind, **options):
        with pytest.raises(OptionError) as caught:
            kind.configured(kind.Options(**options), {}, clients=4)
        return str(caught.value)

    assert message(FedBuff, participation=0.0) == "participation = 0.0 must be above 0 and at most 1"
    assert (
        message(FedBuff, buffer_size=0) == "buffer_size = 0 must be at least 1 and below 9223372036854775808"
    )
    assert message(FedRAW, keep="all") == "keep = 'all' is not one of newest, freshest, mean, off"
    assert message(FedAsync, server_lr=0.5) == (
        "server_lr = 0.5 is not allowed for fedasync, whose step is mixing; leave it at 0.0"
    )


@pytest.mark.parametrize("name", list(STRATEGIES))
def test_default_options_are_the_strategys_own_defaults(name):
    """But for what depends on the number of clients, and Flower's own defaults for rounds."""
    kind = STRATEGIES[name]
    configured, plain = kind.configured(kind.Options(), {}, clients=4), kind()
    rates = {"ace": 0.25, "aced": 0.25}
    if kind.asynchronous:
        assert configured.server_lr == rates.get(name, 1.0)
        for setting in ("buffer_size", "concurrency", "max_staleness", "staleness", "normalise", "weigh_by"):
            assert getattr(configured, setting) == getattr(plain, setting)
        given = 1.0 if kind is FedAsync else 0.5
        options = kind.Options(server_lr=given)
        assert kind.configured(options, {}, clients=4).server_lr == given
    else:
        assert (configured.participation, configured.min_train_nodes) == (1.0, 1)
        assert getattr(configured, "eta", 0.01) == 0.01
        assert getattr(configured, "proximal_mu", 0.01) == 0.01


@pytest.mark.parametrize(
    ("options", "function"),
    [
        ({"staleness": "constant"}, Constant()),
        ({"staleness": "polynomial", "staleness_exponent": 2.0}, Polynomial(2.0)),
        ({"staleness": "hinge", "staleness_slope": 3.0, "staleness_knee": 1.0}, Hinge(3.0, 1.0)),
        ({"staleness": "default", "staleness_exponent": 2.0}, Polynomial(0.5)),
    ],
)
def test_staleness_by_options(options, function):
    assert FedBuff.configured(FedBuff.Options(**options), {}, clients=4).staleness == function


def test_max_staleness_of_minus_one_is_the_strategys_own():
    def limit(name, value):
        kind = ASYNCHRONOUS[name]
        return kind.configured(kind.Options(max_staleness=value), {}, clients=4).max_staleness

    assert [limit("fedbuff", -1), limit("aced", -1), limit("fedbuff", 0), limit("aced", 3)] == [
        None,
        10,
        0,
        3,
    ]


def test_fedraw_is_told_no_coverage_when_updates_show_it():
    told = {"label_coverage": {"a": [1, 0]}, "clock": VirtualClock()}

    def known(source):
        return FedRAW.configured(FedRAW.Options(label_source=source), told, clients=4).label_coverage

    assert known("metrics") == told["label_coverage"]
    assert known("updates") is None


def test_updates_that_make_a_version():
    sizes = {name: kind.Options().updates_per_version for name, kind in ASYNCHRONOUS.items()}
    assert sizes == {name: 4 if kind.buffered else 1 for name, kind in ASYNCHRONOUS.items()}
