"""That the run config and the rounds reach the places where they count, seen in whole runs."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import fairfal_app.labelling as labelling
import federation.client as federation_client
from datasets import federated
from datasets.base import ImageDataset, LoadOptions, Sites
from datasets.federated import federate
from datasets.registry import load_dataset
from fairfal_app.config import FairFALConfig
from fairfal_app.options import needs_local_model, query_strategy
from federation import records
from federation.client import data_spec, initial_model
from federation.config.run_config import RunConfig, default_run_config, parse_run_config
from learning.arrays import to_arrays
from rarefl.client_app import app as client_app
from rarefl.server_app import app as server_app
from tests.inprocess import InProcessGrid, run_in_process

SMALL = {
    "data.clients": 2,
    "train.rounds": 1,
    "train.local-epochs": 1,
    "train.local-only-epochs": 1,
    "query.last-label-ratio": 0.2,
}


def configured(**overrides: Any) -> dict[str, Any]:
    named = {key.replace("__", ".").replace("_", "-"): value for key, value in overrides.items()}
    return default_run_config() | SMALL | named


def run(folder: Path, **overrides: Any) -> InProcessGrid:
    config = configured(**overrides) | {"output.dir": str(folder)}
    return run_in_process(server_app, client_app, 2, config)


def initial(config: RunConfig, label_round: int) -> dict[str, np.ndarray]:
    return to_arrays(initial_model(config, federate(data_spec(config)), label_round))


def same(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> bool:
    return all(np.array_equal(first[key], second[key]) for key in first)


def test_each_label_round_trains_fresh_weights_of_its_own(tmp_path: Path) -> None:
    grid = run(tmp_path)
    config = parse_run_config(configured(), FairFALConfig)
    sent = {
        message.content.config_records[records.CONFIG][records.LABEL_ROUND]: {
            key: array.numpy() for key, array in message.content.array_records[records.ARRAYS].items()
        }
        for message in grid.sent
        if message.metadata.message_type == records.TRAIN
    }
    assert same(sent[1], initial(config, 1))
    assert same(sent[2], initial(config, 2))
    assert not same(sent[1], sent[2])


def test_the_local_only_model_starts_as_the_training_before_the_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts, settings = [], []
    real = labelling.train_local_only

    def spy(model: Any, images: Any, labels: Any, given: Any, *rest: Any, **more: Any) -> Any:
        starts.append({key: value.copy() for key, value in to_arrays(model).items()})
        settings.append(given)
        return real(model, images, labels, given, *rest, **more)

    monkeypatch.setattr(labelling, "train_local_only", spy)
    run(tmp_path, train__local_only_epochs=3)
    config = parse_run_config(configured(), FairFALConfig)
    assert len(starts) == 2  # one a client, though two messages need it
    assert all(same(start, initial(config, 1)) for start in starts)
    assert {given.epochs for given in settings} == {3}


def test_the_learning_rate_decays_in_the_last_quarter_of_the_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = []
    real = federation_client.train_local

    def spy(model: Any, images: Any, labels: Any, settings: Any, *rest: Any) -> Any:
        rates.append(settings.lr)
        return real(model, images, labels, settings, *rest)

    monkeypatch.setattr(federation_client, "train_local", spy)
    run(tmp_path, train__rounds=4, query__last_label_ratio=0.1)
    assert rates == pytest.approx([0.01] * 6 + [0.001] * 2)


def test_evaluation_is_due_every_so_often_and_in_the_last_five(tmp_path: Path) -> None:
    run(tmp_path, train__rounds=9, evaluate__every=3, query__last_label_ratio=0.1)
    rounds = pd.read_csv(tmp_path / "rounds.csv")
    assert rounds["round"].tolist() == [3, 5, 6, 7, 8, 9]
    (told,) = json.loads((tmp_path / "summary.json").read_text())["label_rounds"]
    assert told["accuracy"] == rounds["accuracy"].iloc[-1]
    assert told["accuracy_last5"] == pytest.approx(rounds["accuracy"].iloc[-5:].mean())


def test_the_share_of_rare_labels_is_that_of_the_labels_bought_so_far(tmp_path: Path) -> None:
    run(tmp_path)
    told = json.loads((tmp_path / "summary.json").read_text())
    queries = pd.read_csv(tmp_path / "queries.csv")
    rare = [f"class_{label}" for label in told["rare_labels"]]
    assert rare
    for row in told["label_rounds"]:
        bought = queries[queries["label_round"] <= row["label_round"]]
        share = bought[rare].to_numpy().sum() / bought.filter(like="class_").to_numpy().sum()
        assert row["rare_label_share"] == pytest.approx(share)


@pytest.mark.parametrize(("delta", "model"), [(0.0, "global"), (1.0, "local")])
def test_delta_decides_between_the_models(tmp_path: Path, delta: float, model: str) -> None:
    run(tmp_path, query__delta=delta)
    queries = pd.read_csv(tmp_path / "queries.csv")
    assert (queries[queries["label_round"] == 2]["query_model"] == model).all()


def test_every_option_of_the_query_reaches_the_strategy() -> None:
    options = {
        "query.prototypes": "local",
        "query.kappa": 2.5,
        "query.uncertainty": "margin",
        "query.gradient-probabilities": "auto",
    }
    strategy = query_strategy(parse_run_config(default_run_config() | options, FairFALConfig).query)
    assert [getattr(strategy.options, key.split(".")[1].replace("-", "_")) for key in options] == list(  # type: ignore[attr-defined]
        options.values()
    )


@pytest.mark.parametrize(
    ("overrides", "needed"),
    [
        ({}, True),
        ({"query.model": "global"}, False),
        ({"query.model": "global", "query.prototypes": "local"}, True),
        ({"query.name": "random", "query.model": "local"}, False),
        ({"query.name": "entropy"}, False),
        ({"query.name": "entropy", "query.model": "opposite"}, True),
    ],
)
def test_the_local_only_model_is_trained_only_where_it_is_read(
    overrides: dict[str, Any], needed: bool
) -> None:
    assert (
        needs_local_model(parse_run_config(default_run_config() | overrides, FairFALConfig).query) == needed
    )


def test_clients_evaluate_when_asked(tmp_path: Path) -> None:
    run(tmp_path, evaluate__clients=True, train__rounds=2, query__last_label_ratio=0.1)
    rounds = pd.read_csv(tmp_path / "rounds.csv")
    # Their parts make up the server's test split, so the means are the server's.
    np.testing.assert_allclose(rounds["client_accuracy"], rounds["accuracy"])
    np.testing.assert_allclose(rounds["client_loss"], rounds["loss"], rtol=1e-6)


def test_sites_of_uneven_sizes_one_without_test_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_sites(name: str, options: LoadOptions) -> ImageDataset:
        published = load_dataset(name, options)
        small = (np.arange(len(published.train)) >= 40).astype(np.int64)
        return replace(published, sites=Sites(("b", "a"), small, np.ones(len(published.test), np.int64)))

    monkeypatch.setattr(federated, "load_dataset", with_sites)
    federate.cache_clear()
    natural = {"data__partition": "natural", "data__long_tail": "none", "evaluate__clients": True}
    run(tmp_path, **natural, query__label_ratio=0.05, query__last_label_ratio=0.1)
    federate.cache_clear()
    queries = pd.read_csv(tmp_path / "queries.csv")
    # 5 % of 1,400 images for two clients are 35 labels: the small site has five left for the second round.
    assert queries[["site", "budget"]].to_numpy().tolist() == [["a", 35], ["b", 35], ["a", 35], ["b", 5]]
    rounds = pd.read_csv(tmp_path / "rounds.csv")
    np.testing.assert_allclose(rounds["client_accuracy"], rounds["accuracy"])


def test_the_config_that_is_kept_is_resolved(tmp_path: Path) -> None:
    run(tmp_path, seed=7)
    text = (tmp_path / "config.toml").read_text()
    assert 'model = "adaptive"' in text
    assert text.count("seed = 7") == 2


def test_flips_and_precision_reach_training(tmp_path: Path) -> None:
    finals = []
    for name, overrides in {
        "plain": {},
        "flip": {"train__flip": True},
        "bf16": {"train__precision": "bf16"},
    }.items():
        run(tmp_path / name, query__last_label_ratio=0.1, **overrides)
        finals.append(torch.load(tmp_path / name / "final.pt", weights_only=True)["head.weight"])
    assert not torch.equal(finals[0], finals[1])
    assert not torch.equal(finals[0], finals[2])
