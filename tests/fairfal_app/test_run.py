"""Whole runs of FairFAL in this process: the real ServerApp and ClientApp on digits, in seconds."""

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import fairfal_app.server_app as server
import federation.client as client
from datasets.errors import DatasetNotFoundError
from datasets.federated import DataSpec, FederatedData
from fairfal_app.label_rounds import LabelRounds
from federation import records
from federation.config.run_config import default_run_config
from federation.errors import (
    ConfigError,
    DivergedError,
    LabelsLostError,
    NodesMissingError,
    RunFolderError,
    SourceMismatchError,
)
from federation.runs.run_folder import RunFolder
from rarefl.client_app import app as client_app
from rarefl.server_app import app as server_app
from tests import inprocess
from tests.inprocess import InProcessGrid, run_in_process
from tests.travel import kinds_that_travelled

SMALL = {
    "data.clients": 3,
    "data.alpha": 0.5,
    "train.rounds": 2,
    "train.local-epochs": 1,
    "train.local-only-epochs": 2,
    "query.last-label-ratio": 0.3,
}


def run(
    folder: Path,
    workers: int = 1,
    client: ClientApp = client_app,
    nodes: int = 3,
    pictures: bool = False,
    **overrides: Any,
) -> InProcessGrid:
    config = default_run_config() | SMALL | {"output.dir": str(folder)}
    config |= {key.replace("__", ".").replace("_", "-"): value for key, value in overrides.items()}
    return run_in_process(server_app, client, nodes, config, workers, pictures)


def summary(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "summary.json").read_text())


def final(folder: Path) -> dict[str, torch.Tensor]:
    return torch.load(folder / "final.pt", weights_only=True)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of ``SMALL``, with which others are compared."""
    folder = tmp_path_factory.mktemp("plain")
    run(folder, pictures=True)
    return folder


class Tampering(ClientApp):
    """The real ClientApp, whose messages at one partition pass through ``change``."""

    def __init__(
        self, partition: int, change: Callable[[Message, Message], Message], message_type: str
    ) -> None:
        super().__init__()
        self.partition = partition
        self.change = change
        self.message_type = message_type

    def __call__(self, message: Message, context: Context) -> Message:
        reply = client_app(message, context)
        if (
            context.node_config["partition-id"] == self.partition
            and message.metadata.message_type == self.message_type
        ):
            return self.change(message, reply)
        return reply


def test_a_run_leaves_everything_in_its_folder(plain: Path) -> None:
    assert {path.name for path in plain.iterdir()} == {
        "checkpoint",
        "config.toml",
        "rounds.csv",
        "queries.csv",
        "summary.json",
        "final.pt",
        "curve.png",
        "confusion.csv",
        "events.csv",
        "influence.csv",
        "influence.png",
        "staleness.png",
    }
    told = summary(plain)
    assert told["status"] == "finished"
    assert [row["label_round"] for row in told["label_rounds"]] == [1, 2, 3]
    queries = pd.read_csv(plain / "queries.csv")
    budget = told["budget_per_client"]
    assert len(queries) == 9
    assert (queries["budget"] == budget).all()
    assert (queries["labelled"] == queries["label_round"] * budget).all()
    assert (queries.filter(like="class_").sum(axis=1) == budget).all()
    later = queries[queries["label_round"] > 1]
    assert later["gamma"].between(0, 1).all()
    assert later["d"].between(0, 1).all()
    assert later["gamma_mean"].nunique() == 1
    first_query = queries[queries["label_round"] == 2]
    assert first_query["gamma"].mean() == pytest.approx(first_query["gamma_mean"].iloc[0])
    np.testing.assert_allclose(later["s"], 1 - (later["d"] + later["gamma_mean"]) / 2)
    assert (later["query_model"] == np.where(later["s"] > 0.75, "global", "local")).all()
    pool = told["train_class_counts"]
    assert (len(pool), sum(pool)) == (10, told["train_images"])
    bought = queries.filter(like="class_").sum()
    assert (bought <= pool).all()
    confusion = pd.read_csv(plain / "confusion.csv")
    counts = confusion.drop(columns="label").to_numpy()
    assert np.trace(counts) / counts.sum() == pytest.approx(told["label_rounds"][-1]["accuracy"])
    recalls = [told["label_rounds"][-1][f"accuracy_class_{label}"] for label in range(10)]
    np.testing.assert_allclose(np.diag(counts) / counts.sum(axis=1), recalls)
    rounds = pd.read_csv(plain / "rounds.csv")
    assert rounds[["label_round", "round"]].to_numpy().tolist() == [[t, r] for t in (1, 2, 3) for r in (1, 2)]
    assert all(torch.isfinite(tensor.float()).all() for tensor in final(plain).values())
    assert final(plain)["blocks.0.norm.num_batches_tracked"].dtype == torch.int64


def test_same_seed_same_labels_same_arrays_with_one_or_two_workers(plain: Path, tmp_path: Path) -> None:
    np.random.default_rng().random(7)
    torch.rand(5)
    run(tmp_path / "b", workers=2)
    run(tmp_path / "c", seed=2)
    for name in ("queries.csv", "rounds.csv"):
        assert (plain / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    first, second, other = (final(folder) for folder in (plain, tmp_path / "b", tmp_path / "c"))
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert not all(torch.equal(first[key], other[key]) for key in first)
    assert (plain / "queries.csv").read_bytes() != (tmp_path / "c" / "queries.csv").read_bytes()


def test_what_travels_is_what_records_lists(tmp_path: Path) -> None:
    grid = run(tmp_path, evaluate__clients=True)
    kinds = kinds_that_travelled(grid, final(tmp_path), 10)
    assert kinds == set(records.REQUESTS)


@pytest.mark.parametrize(
    "overrides",
    [
        {"query__name": "random"},
        {"query__name": "entropy"},
        {"query__name": "margin", "query__model": "local"},
        {"query__name": "least-confidence", "query__model": "adaptive"},
        {"query__model": "opposite", "query__prototypes": "local", "query__gradient_probabilities": "auto"},
        {"query__model": "global", "query__prototypes": "none", "query__uncertainty": "margin"},
        {"strategy__name": "fedprox", "data__partition": "iid", "data__long_tail": "none"},
        {"strategy__name": "fedadam", "strategy__participation": 0.5, "data__long_tail": "step"},
        {"strategy__name": "fedyogi", "train__precision": "bf16", "train__flip": True},
    ],
    ids=lambda overrides: "-".join(str(value) for value in overrides.values()),
)
def test_every_option_runs(tmp_path: Path, overrides: dict[str, Any]) -> None:
    run(tmp_path, query__last_label_ratio=0.2, **overrides)
    told = summary(tmp_path)
    assert told["status"] == "finished"
    assert not told["failures"]
    queries = pd.read_csv(tmp_path / "queries.csv")
    name, model = overrides.get("query__name", "fairfal"), overrides.get("query__model", "default")
    chosen = queries[queries["label_round"] == 2]["query_model"]
    if name == "random":
        assert chosen.isna().all()
    elif model in ("global", "local"):
        assert (chosen == model).all()
    elif (name, model) == ("entropy", "default"):
        assert (chosen == "global").all()
    assert all(torch.isfinite(tensor.float()).all() for tensor in final(tmp_path).values())


def test_first_labels_are_the_same_for_every_query_strategy(tmp_path: Path) -> None:
    for name in ("random", "fairfal"):
        run(tmp_path / name, query__name=name, query__last_label_ratio=0.1)
    first, second = (pd.read_csv(tmp_path / name / "queries.csv") for name in ("random", "fairfal"))
    pd.testing.assert_frame_equal(first, second)


def test_a_client_with_nan_is_left_out_and_named(tmp_path: Path) -> None:
    def poison(_: Message, reply: Message) -> Message:
        arrays = reply.content.array_records[records.ARRAYS]
        arrays["head.bias"] = Array(np.full(10, np.nan, dtype=np.float32))
        return reply

    run(tmp_path, client=Tampering(1, poison, "train"))
    told = summary(tmp_path)
    assert told["status"] == "finished"
    assert len(told["failures"]) == 6
    assert all("site-01" in failure and "NaN" in failure for failure in told["failures"])
    assert all(torch.isfinite(tensor.float()).all() for tensor in final(tmp_path).values())


class Diverging(ClientApp):
    """The real ClientApp with a learning rate at some partitions at which its loss becomes NaN."""

    def __init__(self, partitions: set[int]) -> None:
        super().__init__()
        self.partitions = partitions

    def __call__(self, message: Message, context: Context) -> Message:
        if context.node_config["partition-id"] in self.partitions:
            context.run_config["train.lr"] = 1e30
        return client_app(message, context)


def test_a_client_whose_loss_diverges_is_left_out_and_named(tmp_path: Path) -> None:
    run(tmp_path, client=Diverging({1}), train__local_epochs=4, query__last_label_ratio=0.1)
    told = summary(tmp_path)
    assert told["status"] == "finished"
    assert [failure.split(" failed: ")[0] for failure in told["failures"]] == [
        f"train in label round 1, round {r}: site-01" for r in (1, 2)
    ]
    assert all("NonFiniteLossError" in failure for failure in told["failures"])
    assert all(torch.isfinite(tensor.float()).all() for tensor in final(tmp_path).values())


def test_the_run_ends_when_every_client_diverges_and_keeps_what_it_had(tmp_path: Path) -> None:
    with pytest.raises(
        DivergedError, match=r"(?s)^label round 1, round 1: .*site-00, site-01, site-02: NonFin"
    ):
        run(tmp_path, client=Diverging({0, 1, 2}), pictures=True, train__local_epochs=4)
    told = summary(tmp_path)
    assert told["status"] == "diverged"
    assert "Lower train.lr" in told["reason"]
    assert "NonFiniteLossError" in told["reason"]
    assert len(pd.read_csv(tmp_path / "queries.csv")) == 3


def test_a_client_that_raises_is_named_and_the_run_goes_on(tmp_path: Path) -> None:
    def raises(message: Message, reply: Message) -> Message:
        raise OSError("disk full")

    for kind in ("train", "query.estimate"):
        run(tmp_path / kind, client=Tampering(2, raises, kind), query__last_label_ratio=0.2)
        told = summary(tmp_path / kind)
        assert told["status"] == "finished"
        assert told["failures"]
        assert all("site-02 failed: OSError: disk full" in failure for failure in told["failures"])


def test_missing_gammas_of_all_clients_mean_the_local_model(tmp_path: Path) -> None:
    def silent(message: Message, _: Message) -> Message:
        return Message(RecordDict({records.METRICS: MetricRecord()}), reply_to=message)

    class Silent(ClientApp):
        def __call__(self, message: Message, context: Context) -> Message:
            reply = client_app(message, context)
            return silent(message, reply) if message.metadata.message_type == records.ESTIMATE else reply

    run(tmp_path, client=Silent(), query__last_label_ratio=0.2)
    queries = pd.read_csv(tmp_path / "queries.csv")
    asked = queries[queries["label_round"] == 2]
    assert (asked["gamma_mean"] == 1.0).all()
    assert (asked["query_model"] == "local").all()


@pytest.mark.parametrize("kind", [records.ESTIMATE, records.SELECT])
def test_a_client_that_fails_once_in_a_query_is_asked_again(plain: Path, tmp_path: Path, kind: str) -> None:
    failed = []

    def raises_once(message: Message, reply: Message) -> Message:
        if failed:
            return reply
        failed.append(message)
        raise OSError("disk busy")

    run(tmp_path, client=Tampering(1, raises_once, kind))
    told = summary(tmp_path)
    assert [line.partition(" in label")[0] for line in told["failures"]] == [kind]
    assert told["participation"] == {"asked": 15, "answered": 15, "left_out": []}
    assert (tmp_path / "queries.csv").read_bytes() == (plain / "queries.csv").read_bytes()
    assert all(torch.equal(final(tmp_path)[key], final(plain)[key]) for key in final(plain))


def test_a_client_that_goes_on_failing_in_a_query_is_left_out_and_the_run_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    times = []

    def raises(message: Message, reply: Message) -> Message:
        if message.content["config"][records.LABEL_ROUND] != 2:
            return reply
        times.append(time.monotonic())
        raise OSError("disk full")

    run(tmp_path, client=Tampering(1, raises, records.SELECT))
    assert len(times) == 3
    assert times[1] - times[0] >= 0.5
    assert times[2] - times[1] >= 1.0
    told = summary(tmp_path)
    (left_out,) = told["participation"]["left_out"]
    assert (left_out["label_round"], left_out["site"], left_out["what"]) == (2, "site-01", records.SELECT)
    assert "disk full" in left_out["reason"]
    assert told["participation"]["asked"] - told["participation"]["answered"] == 1
    assert len(told["failures"]) == 1
    assert "site-01 is left out of query.select in label round 2" in capsys.readouterr().out
    queries = pd.read_csv(tmp_path / "queries.csv")
    assert queries.groupby("label_round")["site"].count().tolist() == [3, 2, 3]


def test_a_model_that_predicts_nan_is_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def overflows(message: Message, reply: Message) -> Message:
        weight = reply.content["arrays"]["head.weight"].numpy()
        reply.content["arrays"]["head.weight"] = Array(np.full_like(weight, np.finfo(np.float32).max))
        return reply

    with pytest.raises(DivergedError, match=r"^label round 1, round 1: the global model predicts NaN"):
        run(tmp_path, client=Tampering(1, overflows, "train"))
    told = summary(tmp_path)
    assert told["status"] == "diverged"
    assert "updates of site-00, site-01, site-02 are in it" in told["reason"]
    assert not (tmp_path / "rounds.csv").exists()


def test_label_rounds_have_events_and_influence_whatever_trains_them(plain: Path, tmp_path: Path) -> None:
    run(tmp_path, strategy__name="fedraw", strategy__buffer_size=2, strategy__concurrency=3)
    for folder, per_round in ((plain, 2), (tmp_path, 3)):
        events = pd.read_csv(folder / "events.csv")
        published = events[events["kind"] == "publish"]
        assert (
            published.groupby("label_round")["version"].apply(list).tolist()
            == [list(range(1, per_round + 1))] * 3
        )
        influence = pd.read_csv(folder / "influence.csv")
        assert influence["label_round"].tolist() == [t for t in (1, 2, 3) for _ in range(4)]
        sites = influence[influence["site"].str.startswith("site-")]
        np.testing.assert_allclose(sites.groupby("label_round")["share_of_weight"].sum(), 1.0)
        for row in summary(folder)["label_rounds"]:
            assert (
                row["aggregated"] == sites[sites["label_round"] == row["label_round"]]["participations"].sum()
            )


def test_a_client_whose_images_are_all_labelled_counts_in_the_mean_of_gamma(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = server.federate

    def uneven(spec: DataSpec) -> FederatedData:
        data = real(spec)
        return replace(data, pools=(data.pools[0][:10], *data.pools[1:]))

    monkeypatch.setattr(server, "federate", uneven)
    monkeypatch.setattr(client, "federate", uneven)
    run(tmp_path, query__last_label_ratio=0.2)
    queries = pd.read_csv(tmp_path / "queries.csv")
    second = queries[queries["label_round"] == 2]
    assert second["budget"].tolist() == [0, 19, 19]
    assert second["gamma"].notna().all()
    assert second["d"].notna().tolist() == [False, True, True]
    assert second["gamma"].mean() == pytest.approx(second["gamma_mean"].iloc[0])


def test_a_client_with_other_sources_ends_the_run_and_both_paths_are_named(tmp_path: Path) -> None:
    def other(_: Message, reply: Message) -> Message:
        identity = reply.content.config_records[records.CONFIG]
        identity[records.FINGERPRINT] = "0" * 64
        identity[records.SOURCE] = "/somewhere/else"
        return reply

    with pytest.raises(SourceMismatchError, match="/somewhere/else"):
        run(tmp_path, client=Tampering(0, other, records.HELLO))
    assert "/somewhere/else" in summary(tmp_path)["reason"]


@pytest.mark.parametrize("nodes", [0, 2, 4])
def test_wrong_number_of_nodes(tmp_path: Path, nodes: int) -> None:
    with pytest.raises(NodesMissingError, match=f"{nodes} of 3"):
        run(tmp_path, nodes=nodes, nodes__timeout=0.1)
    assert summary(tmp_path)["status"] == "failed"


@pytest.mark.parametrize(("ratio", "budget"), [(0.001, 1), (0.34, 65), (1.0, 193)])
def test_budgets_at_the_edges(tmp_path: Path, ratio: float, budget: int) -> None:
    """One label a client, so one class; a last batch of one image; the whole pool."""
    last = min(1.0, 2 * ratio)
    run(tmp_path, pictures=True, query__label_ratio=ratio, query__last_label_ratio=last, data__alpha=0.01)
    told = summary(tmp_path)
    assert told["status"] == "finished"
    assert told["budget_per_client"] == budget
    assert not told["failures"]


def test_a_budget_above_the_pool_takes_the_rest_and_the_run_goes_on(tmp_path: Path) -> None:
    """1,068 images count as 1,100, so that a client is to label 550 of its 534, at once or in two rounds."""
    for ratio, budgets in ((1.0, [[534, 534]]), (0.5, [[275, 275], [259, 259]])):
        folder = tmp_path / str(ratio)
        overrides = {
            "data__long_tail": "step",
            "data__imbalance": 2.0,
            "data__clients": 2,
            "train__rounds": 1,
        }
        run(folder, nodes=2, query__label_ratio=ratio, query__last_label_ratio=1.0, **overrides)
        queries = pd.read_csv(folder / "queries.csv")
        assert [group["budget"].tolist() for _, group in queries.groupby("label_round")] == budgets
        assert summary(folder)["status"] == "finished"
        assert summary(folder)["label_rounds"][-1]["label_ratio"] == 1.0


def test_a_client_without_labels_does_not_train(tmp_path: Path) -> None:
    def raises(message: Message, reply: Message) -> Message:
        raise OSError("oracle away")

    run(tmp_path, client=Tampering(0, raises, records.SELECT), query__last_label_ratio=0.2)
    told = summary(tmp_path)
    assert told["status"] == "finished"
    assert len(told["failures"]) == 2  # its two selections; it is never asked to train
    assert set(pd.read_csv(tmp_path / "queries.csv")["site"]) == {"site-01", "site-02"}


class Untouched(ClientApp):
    """A ClientApp that no message may reach."""

    def __call__(self, message: Message, context: Context) -> Message:
        raise AssertionError("a client was asked to work")


def test_faults_of_the_config_stop_before_any_client_works(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match=r"output\.dir: cannot write"):
        run(tmp_path / "file" / "below", client=Untouched())
    with pytest.raises(RunFolderError, match="is relative"):
        run(Path("results"), client=Untouched())
    with pytest.raises(ConfigError, match=r"query\.kappa"):
        run(tmp_path / "kappa", client=Untouched(), query__kappa=0.0)
    with pytest.raises(DatasetNotFoundError, match="fashion-mnist"):
        run(tmp_path / "data", client=Untouched(), data__name="fashion-mnist", data__root=str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_second_select_of_a_round_gets_the_answer_of_the_first(tmp_path: Path, state_folder: Path) -> None:
    grid = run(tmp_path, query__last_label_ratio=0.2)
    select = [message for message in grid.sent if message.metadata.message_type == records.SELECT]
    answers = [message for message in grid.received if message.metadata.message_type == records.SELECT]
    (file,) = state_folder.glob(f"{select[0].content['config'][records.RUN]}/site-00/labels.json")
    before = file.read_bytes()
    for first in (0, -3):
        (reply,) = grid.send_and_receive([Message(select[first].content, 1000, records.SELECT)])
        assert reply.content == answers[first].content
    assert file.read_bytes() == before


def test_local_only_model_is_the_same_from_state_and_trained_again(plain: Path, tmp_path: Path) -> None:
    class Forgetful(ClientApp):
        def __call__(self, message: Message, context: Context) -> Message:
            if message.metadata.message_type == records.SELECT:
                context.state.clear()
            return client_app(message, context)

    run(tmp_path, client=Forgetful())
    assert (tmp_path / "queries.csv").read_bytes() == (plain / "queries.csv").read_bytes()


def test_arrays_travel_as_numpy(tmp_path: Path) -> None:
    grid = run(tmp_path, query__last_label_ratio=0.1)
    trained = next(message for message in grid.received if message.metadata.message_type == "train")
    record = trained.content.array_records[records.ARRAYS]
    assert isinstance(record, ArrayRecord)
    assert record["blocks.0.norm.num_batches_tracked"].numpy().shape == ()


def test_a_client_with_other_metrics_is_left_out_and_named(tmp_path: Path) -> None:
    def more(_: Message, reply: Message) -> Message:
        reply.content.metric_records[records.METRICS]["extra"] = 1.0
        return reply

    run(tmp_path, client=Tampering(0, more, "train"), query__last_label_ratio=0.1)
    told = summary(tmp_path)
    assert told["status"] == "finished"
    assert all("site-00" in failure and "extra" in failure for failure in told["failures"])
    assert len(told["failures"]) == 2


def test_a_client_that_lost_its_labels_ends_the_run_and_the_model_is_kept(
    tmp_path: Path, state_folder: Path
) -> None:
    class Forgetting(ClientApp):
        def __call__(self, message: Message, context: Context) -> Message:
            if message.metadata.message_type == records.ESTIMATE and context.node_config["partition-id"] == 1:
                shutil.rmtree(state_folder / message.content["config"][records.RUN] / "site-01")
                context.state.clear()
            return client_app(message, context)

    with pytest.raises(LabelsLostError, match="site-01 has 19 labels where 38 are due"):
        run(tmp_path, client=Forgetting())
    told = summary(tmp_path)
    assert told["status"] == "failed"
    assert len(told["label_rounds"]) == 1
    assert final(tmp_path)


def test_a_supernode_that_was_started_again_has_its_labels(plain: Path, tmp_path: Path) -> None:
    """Its Flower state is gone between any two messages, and the run is as if it were not."""

    class StartedAgain(ClientApp):
        def __call__(self, message: Message, context: Context) -> Message:
            context.state.clear()
            return client_app(message, context)

    run(tmp_path, client=StartedAgain())
    for table in ("queries.csv", "rounds.csv"):
        assert (tmp_path / table).read_bytes() == (plain / table).read_bytes()


def test_clients_that_move_between_machines_keep_their_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each message of a client is answered on the other of two machines, which share no disk."""

    class Moving(ClientApp):
        def __init__(self) -> None:
            super().__init__()
            self.messages = 0

        def __call__(self, message: Message, context: Context) -> Message:
            self.messages += 1
            monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / f"machine-{self.messages % 2}"))
            return client_app(message, context)

    run(tmp_path / "still")
    run(tmp_path / "moved", client=Moving())
    assert len(list(tmp_path.glob("machine-*/rarefl/clients/*"))) == 2
    for table in ("queries.csv", "rounds.csv"):
        assert (tmp_path / "still" / table).read_bytes() == (tmp_path / "moved" / table).read_bytes()


def test_a_supernode_that_comes_back_as_a_new_node_is_the_site_that_it_was(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the first training and the second query site-01 gets a new node without any state."""
    inner: list[InProcessGrid] = []

    class Moving(InProcessGrid):
        def __init__(self, *args: Any, **settings: Any) -> None:
            super().__init__(*args, **settings)
            inner.append(self)

    real = LabelRounds.query

    def move_first(self: LabelRounds, label_round: int, arrays: ArrayRecord | None) -> bool:
        if label_round == 2:
            (grid,) = inner
            context = grid.contexts.pop(1001)
            context.node_id, context.state = 7, RecordDict()
            grid.contexts[7], grid.locks[7] = context, grid.locks[1001]
        return real(self, label_round, arrays)

    monkeypatch.setattr(inprocess, "InProcessGrid", Moving)
    monkeypatch.setattr(LabelRounds, "query", move_first)
    run(tmp_path)
    for table in ("queries.csv", "rounds.csv"):
        assert (tmp_path / table).read_bytes() == (plain / table).read_bytes()
    assert not summary(tmp_path)["failures"]


def test_clients_keep_their_labels_where_the_node_config_says(tmp_path: Path) -> None:
    class Elsewhere(ClientApp):
        def __call__(self, message: Message, context: Context) -> Message:
            context.node_config["state-dir"] = str(tmp_path / "state")
            return client_app(message, context)

    run(tmp_path / "run", client=Elsewhere(), query__last_label_ratio=0.1)
    (of_run,) = (tmp_path / "state").iterdir()
    assert sorted(path.name for path in of_run.iterdir()) == ["site-00", "site-01", "site-02"]


def test_two_runs_cannot_share_a_folder(tmp_path: Path) -> None:
    folder = RunFolder.create(str(tmp_path), "fairfal", "first")
    with pytest.raises(RunFolderError, match="another run is writing"):
        run(tmp_path, client=Untouched())
    assert folder.path == tmp_path


def test_label_rounds_end_when_nothing_is_left_to_label(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two clients that hold 10 images each and buy 4 in a label round are done after three of ten rounds."""
    real = server.federate

    def small(spec: DataSpec) -> FederatedData:
        data = real(spec)
        return replace(data, pools=tuple(pool[:10] for pool in data.pools))

    monkeypatch.setattr(server, "federate", small)
    monkeypatch.setattr(client, "federate", small)
    monkeypatch.setattr(server, "budget_per_client", lambda *_: 4)
    run(
        tmp_path, nodes=2, data__clients=2, train__rounds=1, query__name="random", query__last_label_ratio=1.0
    )
    told = summary(tmp_path)
    assert told["status"] == "finished"
    assert [row["labelled"] for row in told["label_rounds"]] == [8, 16, 20]
