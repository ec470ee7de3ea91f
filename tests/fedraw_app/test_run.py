"""Whole runs of FedRAW in this process: the real ServerApp and ClientApp on digits, in seconds."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from federation import records
from federation.config.run_config import default_run_config, parse_run_config
from federation.errors import ConfigError, DivergedError, NodesMissingError
from fedraw.errors import DelayError, RunStoppedError, SettingError
from fedraw.registry import ASYNCHRONOUS, STRATEGIES
from fedraw_app.options import TrainingSites, check_rare_labels, read_delays, training_strategy
from rarefl.client_app import app as client_app
from rarefl.server_app import app as server_app
from tests.inprocess import InProcessGrid, run_in_process
from tests.travel import kinds_that_travelled

SMALL = {
    "app": "fedraw",
    "data.clients": 4,
    "data.partition": "rare-holders",
    "data.rare-labels": "8,9",
    "data.rare-holders": 1,
    "data.imbalance": 50.0,
    "train.rounds": 2,
    "train.local-epochs": 1,
    "strategy.buffer-size": 2,
    "strategy.concurrency": 3,
    "clock.delays": "rare-slow",
    "evaluate.every": 3,
}
PLOTS = {"accuracy.png", "influence.png", "staleness.png"}


def run(
    folder: Path,
    workers: int = 1,
    client: ClientApp = client_app,
    pictures: bool = False,
    **overrides: Any,
) -> InProcessGrid:
    config = default_run_config() | SMALL | {"output.dir": str(folder)}
    config |= {key.replace("__", ".").replace("_", "-"): value for key, value in overrides.items()}
    return run_in_process(server_app, client, 4, config, workers, pictures)


def summary(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "summary.json").read_text())


def final(folder: Path) -> dict[str, torch.Tensor]:
    return torch.load(folder / "final.pt", weights_only=True)


def events(folder: Path) -> pd.DataFrame:
    return pd.read_csv(folder / "events.csv")


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_by_name_twice_the_same_with_one_and_two_workers(tmp_path: Path, name: str) -> None:
    run(tmp_path / "one", strategy__name=name, workers=1, pictures=True)
    run(tmp_path / "two", strategy__name=name, workers=2)
    for table in ("events.csv", "rounds.csv", "influence.csv"):
        assert (tmp_path / "one" / table).read_bytes() == (tmp_path / "two" / table).read_bytes()
    first, second = final(tmp_path / "one"), final(tmp_path / "two")
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert all(torch.isfinite(tensor.float()).all() for tensor in first.values())
    told, log = summary(tmp_path / "one"), events(tmp_path / "one")
    assert told["status"] == "finished"
    assert not told["failures"]
    kinds = Counter(log["kind"])
    # As many updates as two rounds of four clients take.
    assert kinds["publish"] == told["result"]["version"] == log["version"].max()
    assert kinds["aggregate"] == told["influence"]["aggregated"]
    assert kinds["aggregate"] >= 8 if name != "aced" else kinds["aggregate"] > 0
    assert log["time"].is_monotonic_increasing
    assert pd.read_csv(tmp_path / "one" / "rounds.csv")["version"].iloc[-1] == told["result"]["version"]
    if name not in ASYNCHRONOUS:
        assert kinds["publish"] == 2
        assert (log["staleness"].dropna() == 0).all()


@pytest.mark.parametrize(
    ("name", "given", "used"),
    [("ace", 0.0, 0.25), ("aced", 0.0, 0.25), ("ace", 0.5, 0.5), ("fedraw", 0.0, 1.0)],
)
def test_the_servers_learning_rate_by_default(name: str, given: float, used: float) -> None:
    overrides = {"strategy.name": name, "strategy.server-lr": given}
    config = parse_run_config(default_run_config() | SMALL | overrides)
    sites = TrainingSites(
        names={node: f"site-{node}" for node in range(4)},
        examples={f"site-{node}": 10 for node in range(4)},
        coverage={f"site-{node}": [1] * 10 for node in range(4)},
    )
    assert training_strategy(config, sites, (8, 9), 1).server_lr == used


def test_a_run_leaves_everything_in_its_folder(tmp_path: Path) -> None:
    run(tmp_path, pictures=True, strategy__name="fedraw", train__versions=7, evaluate__clients=True)
    names = {
        "checkpoint",
        "config.toml",
        "rounds.csv",
        "events.csv",
        "influence.csv",
        "confusion.csv",
        "summary.json",
        "final.pt",
    }
    assert {path.name for path in tmp_path.iterdir()} == names | PLOTS
    assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in PLOTS)
    log = events(tmp_path)
    assert list(log.columns) == ["time", "kind", "site", "job", "version", "staleness", "weight", "reason"]
    flushes = log[log["kind"] == "aggregate"].groupby("version")["weight"].agg(["size", "sum"])
    assert (flushes["size"] == 2).all()
    assert (flushes["sum"] <= 1 + 1e-9).all()
    rounds = pd.read_csv(tmp_path / "rounds.csv")
    assert rounds["version"].tolist() == [0, 3, 6, 7]
    published = log[log["kind"] == "publish"].set_index("version")["time"]
    assert rounds["time"].tolist() == [0.0, *published[[3, 6, 7]]]
    measured = {"accuracy", "balanced_accuracy", "rare_accuracy", "common_accuracy", "macro_f1", "loss"}
    assert set(rounds.columns) == {"version", "time"} | measured | {f"accuracy_class_{i}" for i in range(10)}
    influence = pd.read_csv(tmp_path / "influence.csv")
    sites, rare = influence.iloc[:-1], influence.iloc[-1]
    assert sites["site"].tolist() == [f"site-0{i}" for i in range(4)]
    assert sites["rare"].sum() == 1
    assert sites["share_of_updates"].sum() == pytest.approx(1)
    assert sites["share_of_weight"].sum() == pytest.approx(1)
    counts = Counter(log[log["kind"] == "aggregate"]["site"])
    assert sites["participations"].tolist() == [counts[site] for site in sites["site"]]
    assert rare["site"] == "(rare sites)"
    own = sites[sites["rare"] == 1].iloc[0]
    assert rare[["participations", "weight"]].tolist() == own[["participations", "weight"]].tolist()
    told = summary(tmp_path)
    assert told["rare_labels"] == [8, 9]
    assert told["result"]["participation_bias"] == pytest.approx(rare["participation_bias"])
    assert told["result"]["accuracy"] == rounds["accuracy"].iloc[-1]
    assert told["influence"]["rare_clients"] == [own["site"]]
    counts = pd.read_csv(tmp_path / "confusion.csv").drop(columns="label").to_numpy()
    assert np.trace(counts) / counts.sum() == pytest.approx(told["result"]["accuracy"])


def test_evaluation_has_no_effect(tmp_path: Path) -> None:
    run(tmp_path / "often", evaluate__every=1, evaluate__clients=True, strategy__name="fedraw")
    run(tmp_path / "never", evaluate__every=1000, strategy__name="fedraw")
    assert len(pd.read_csv(tmp_path / "often" / "rounds.csv")) == 5
    assert len(pd.read_csv(tmp_path / "never" / "rounds.csv")) == 2
    for table in ("events.csv", "influence.csv"):
        assert (tmp_path / "often" / table).read_bytes() == (tmp_path / "never" / table).read_bytes()
    first, second = final(tmp_path / "often"), final(tmp_path / "never")
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_another_seed_is_another_run(tmp_path: Path) -> None:
    run(tmp_path / "a", strategy__name="fedbuff", train__versions=2)
    run(tmp_path / "b", strategy__name="fedbuff", train__versions=2, seed=2)
    assert (tmp_path / "a" / "events.csv").read_bytes() != (tmp_path / "b" / "events.csv").read_bytes()


def test_fedraw_without_its_two_parts_is_fedbuff(tmp_path: Path) -> None:
    run(tmp_path / "fedbuff", strategy__name="fedbuff")
    run(tmp_path / "fedraw", strategy__name="fedraw", strategy__keep="off", strategy__rarity_weight=0.0)
    assert (tmp_path / "fedbuff" / "events.csv").read_bytes() == (
        tmp_path / "fedraw" / "events.csv"
    ).read_bytes()
    first, second = final(tmp_path / "fedbuff"), final(tmp_path / "fedraw")
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_what_travels_is_what_records_lists(tmp_path: Path) -> None:
    grid = run(tmp_path, strategy__name="fedraw", evaluate__clients=True)
    kinds = kinds_that_travelled(grid, final(tmp_path), 10)
    assert kinds == {records.HELLO, records.TRAIN, records.EVALUATE}


@pytest.mark.parametrize(
    "overrides",
    [
        {"clock__delays": "lognormal", "clock__speed_sigma": 1.0, "strategy__keep": "freshest"},
        {"clock__delays": "pareto", "clock__dispatch": "random", "strategy__keep": "mean"},
        {"clock__availability": "bernoulli", "strategy__rarity": "max", "strategy__weigh_by": "examples"},
        {"strategy__label_source": "updates", "strategy__staleness": "hinge"},
        {"strategy__max_staleness": 2, "strategy__normalise": "weights", "strategy__staleness": "constant"},
        {"clock__name": "wall", "strategy__staleness": "polynomial"},
        {"data__partition": "iid", "data__long_tail": "none", "clock__delays": "constant"},
    ],
    ids=lambda overrides: "-".join(str(value) for value in overrides.values()),
)
def test_every_option_runs(tmp_path: Path, overrides: dict[str, Any]) -> None:
    run(tmp_path, pictures=True, strategy__name="fedraw", train__versions=3, **overrides)
    assert summary(tmp_path)["status"] == "finished"
    assert not summary(tmp_path)["failures"]


def test_rounds_of_fedavg_take_as_long_as_their_slowest_client(tmp_path: Path) -> None:
    file = tmp_path / "delays.csv"
    file.write_text("site,seconds\n" + "".join(f"site-0{i},{1.5 + i}\n" for i in range(4)))
    run(tmp_path / "run", clock__delays="from-list", clock__delays_file=str(file))
    log = events(tmp_path / "run")
    assert log[log["kind"] == "publish"]["time"].tolist() == [4.5, 9.0]
    weights = log[log["kind"] == "aggregate"].groupby("version")["weight"].sum()
    assert weights.tolist() == pytest.approx([1.0, 1.0])


def test_timing_only_runs_the_schedule_of_a_real_run_without_a_message(tmp_path: Path) -> None:
    run(tmp_path / "real", strategy__name="fedbuff")
    grid = run(tmp_path / "timing", strategy__name="fedbuff", clock__timing_only=True)
    assert {message.metadata.message_type for message in grid.sent} == {records.HELLO}
    assert (tmp_path / "real" / "events.csv").read_bytes() == (
        tmp_path / "timing" / "events.csv"
    ).read_bytes()
    assert not {"final.pt", "rounds.csv", "confusion.csv", "accuracy.png"} & {
        path.name for path in (tmp_path / "timing").iterdir()
    }
    assert summary(tmp_path / "timing")["result"]["aggregated"] == 8


class Failing(ClientApp):
    """The real ClientApp, whose jobs fail where ``fails(partition, job)`` says so."""

    def __init__(self, fails: Any) -> None:
        super().__init__()
        self.fails = fails

    def __call__(self, message: Message, context: Context) -> Message:
        if message.metadata.message_type == records.TRAIN:
            job = message.content.config_records[records.CONFIG].get(records.JOB, 0)
            if self.fails(context.node_config["partition-id"], job):
                raise OSError("disk full")
        return client_app(message, context)


@pytest.mark.parametrize("name", ["fedraw", "fedavg"])
def test_a_failed_job_is_named_and_the_run_goes_on(tmp_path: Path, name: str) -> None:
    run(tmp_path, strategy__name=name, client=Failing(lambda partition, job: partition == 1 and job == 0))
    told = summary(tmp_path)
    assert told["status"] == "finished"
    assert any("site-01" in failure for failure in told["failures"])
    assert (events(tmp_path)["kind"] == "fail").sum() >= 1


def test_a_run_that_cannot_go_on_keeps_its_model(tmp_path: Path) -> None:
    with pytest.raises(RunStoppedError, match="disk full"):
        run(
            tmp_path,
            client=Failing(lambda _, job: job > 0),
            pictures=True,
            strategy__name="fedbuff",
            train__versions=9,
        )
    told = summary(tmp_path)
    assert told["status"] == "failed"
    assert "disk full" in told["reason"]
    assert told["influence"]["aggregated"] > 0
    assert (tmp_path / "final.pt").exists()


@pytest.mark.parametrize(
    ("overrides", "error", "match"),
    [
        ({"strategy__buffer_size": 5}, ConfigError, r"buffer-size = 5 .* data\.clients = 4"),
        ({"strategy__concurrency": 0}, ConfigError, r"concurrency = 0"),
        ({"strategy__rarity_weight": -1.0}, ConfigError, r"rarity-weight = -1\.0"),
        ({"clock__delays": "log-normal"}, ConfigError, "did you mean 'lognormal'"),
        ({"data__rare_labels": "8,10"}, Exception, r"rare labels are 8, 10"),
    ],
)
def test_wrong_settings_stop_before_any_client_works(
    tmp_path: Path, overrides: dict[str, Any], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        run(tmp_path, strategy__name="fedraw", **overrides)
    assert not list(tmp_path.iterdir())


def test_a_trace_that_overlaps_stops_before_any_client_works(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text("site,on,off\nsite-00,0,10\nsite-00,5,20\n")
    trace = {"clock__availability": "trace", "clock__availability_file": str(file)}
    with pytest.raises(DelayError, match=r"'site-00'.* overlap"):
        run(tmp_path / "run", strategy__name="fedraw", **trace)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("site,seconds\nsite-00,fast\n", "line 2: seconds is 'fast'"),
        ("site,seconds\nsite-00,-1\n", r"line 2: seconds is -1\.0"),
    ],
)
def test_a_list_of_delays_that_is_wrong_stops_before_any_client_works(
    tmp_path: Path, text: str, match: str
) -> None:
    file = tmp_path / "delays.csv"
    file.write_text(text)
    listed = {"clock__delays": "from-list", "clock__delays_file": str(file)}
    with pytest.raises(DelayError, match=match):
        run(tmp_path / "run", strategy__name="fedraw", **listed)
    assert not (tmp_path / "run").exists()


def test_a_list_of_delays_that_lacks_a_site_stops_before_any_training(tmp_path: Path) -> None:
    file = tmp_path / "delays.csv"
    file.write_text("site,seconds\n" + "".join(f"site-0{i},1\n" for i in range(3)))
    settings = {"clock.delays": "from-list", "clock.delays-file": str(file)}
    config = parse_run_config(default_run_config() | SMALL | settings)
    names = {i: f"site-0{i}" for i in range(4)}
    with pytest.raises(DelayError, match="no row of site 'site-03'; it has site-00, site-01, site-02"):
        read_delays(config, TrainingSites(names, {}, {}), rare_sites=())


def test_slow_rare_sites_need_rare_labels() -> None:
    config = parse_run_config(default_run_config() | SMALL)
    with pytest.raises(SettingError, match="rare-slow"):
        check_rare_labels(config, rare_labels=())
    check_rare_labels(config, rare_labels=(9,))


def test_a_run_whose_clients_all_diverge_says_so(tmp_path: Path) -> None:
    with pytest.raises(DivergedError, match=r"(?s)^version 1: .*not finite"):
        run(tmp_path, strategy__name="fedraw", train__lr=1e30, train__local_epochs=3)
    told = summary(tmp_path)
    assert told["status"] == "diverged"
    assert "Lower train.lr" in told["reason"]
    assert (tmp_path / "final.pt").is_file()


def test_clients_that_cannot_evaluate_cost_a_run_their_measures_only(tmp_path: Path) -> None:
    class CannotEvaluate(ClientApp):
        def __call__(self, message: Message, context: Context) -> Message:
            if message.metadata.message_type == records.EVALUATE:
                assert "label-round" not in message.content["config"]
                raise OSError("no test images")
            return client_app(message, context)

    run(tmp_path, client=CannotEvaluate(), strategy__name="fedavg", evaluate__clients=True)
    assert summary(tmp_path)["status"] == "finished"
    rows = pd.read_csv(tmp_path / "rounds.csv")
    assert rows["client_accuracy"].isna().all()
    assert any("evaluate in round 2: site-0" in line for line in summary(tmp_path)["failures"])


def test_wrong_number_of_nodes(tmp_path: Path) -> None:
    with pytest.raises(NodesMissingError, match="4 of 5"):
        run(tmp_path, data__clients=5, nodes__timeout=0.1)
    assert summary(tmp_path)["status"] == "failed"


def test_label_rounds_are_trained_by_an_asynchronous_strategy(tmp_path: Path) -> None:
    settings = {"app": "fairfal", "strategy__name": "fedraw", "query__last_label_ratio": 0.2}
    settings |= {"train__local_only_epochs": 2}
    run(tmp_path / "one", workers=1, **settings)
    run(tmp_path / "two", workers=2, **settings)
    for table in ("queries.csv", "rounds.csv"):
        assert (tmp_path / "one" / table).read_bytes() == (tmp_path / "two" / table).read_bytes()
    told = summary(tmp_path / "one")
    assert told["status"] == "finished"
    assert [row["round"] for row in told["label_rounds"]] == [4, 4]
    assert np.isfinite([row["train_loss"] for row in told["label_rounds"]]).all()
