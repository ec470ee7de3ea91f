"""The presets of FairFAL's experiments lead to the published pools, budgets and normalisation."""

import json
import tomllib
from pathlib import Path

import medmnist
import numpy as np
import pytest

from datasets.base import DataCard
from datasets.budget import budget_per_client
from datasets.partitions.long_tail import long_tail_counts
from datasets.sources import cifar, fashion_mnist, med_mnist
from fairfal_app.config import FairFALConfig
from federation.config.flat import flatten
from federation.config.run_config import default_run_config, parse_run_config

ROOT = Path(__file__).parents[3]
CASES = json.loads((ROOT / "tests/fairfal_app/cases.json").read_text())["arithmetic"]

CARDS = {
    "fmnist": fashion_mnist.CARD,
    "cifar10": cifar.CIFAR10,
    "cifar100": cifar.CIFAR100,
    "octmnist": med_mnist.OCTMNIST,
    "dermamnist": med_mnist.DERMAMNIST,
}
# Training images of each class as published.
SIZES = {
    "fashion-mnist": [6000] * 10,
    "cifar10": [5000] * 10,
    "cifar100": [500] * 100,
    "octmnist": [33484, 10213, 7754, 46026],
    "dermamnist": [228, 359, 769, 80, 779, 4693, 99],
}
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
NORMALISATION = {
    "fmnist": ((0.286,), (0.353,)),
    "cifar10": IMAGENET,
    "cifar100": IMAGENET,
    "octmnist": ((0.5,), (0.5,)),
    "dermamnist": ((0.5,) * 3, (0.5,) * 3),
}
papers = pytest.mark.parametrize("preset", list(CARDS))


def preset_config(name: str) -> FairFALConfig:
    overrides = flatten(tomllib.loads((ROOT / f"conf/{name}.toml").read_text()))
    return parse_run_config(default_run_config() | overrides, FairFALConfig)


@papers
def test_pool_and_budget(preset: str) -> None:
    config, card = preset_config(f"fairfal-{preset}"), CARDS[preset]
    assert config.data.name == card.name
    sizes = np.array(SIZES[card.name])
    assert len(sizes) == len(card.class_names)
    total = int(long_tail_counts(sizes, config.data.long_tail, config.data.imbalance).sum())
    budget = budget_per_client(config.query.label_ratio, total, config.data.clients)
    assert total == CASES["long_tail_totals_rho_20"].get(card.name, sizes.sum())
    assert budget == CASES["budget_per_client_5_percent_10_clients"][card.name]


@pytest.mark.parametrize("name", ["octmnist", "dermamnist"])
def test_class_sizes_add_up_to_the_published_split(name: str) -> None:
    assert sum(SIZES[name]) == medmnist.INFO[name]["n_samples"]["train"]


@papers
def test_normalisation(preset: str) -> None:
    profile = preset_config(f"fairfal-{preset}").data.long_tail
    card: DataCard = CARDS[preset].for_profile(profile)
    assert (card.mean, card.std) == NORMALISATION[preset]


def test_cifar100_without_a_long_tail_has_a_normalisation_of_its_own() -> None:
    card = cifar.CIFAR100.for_profile("none")
    assert (card.mean, card.std) == ((0.507, 0.487, 0.441), (0.267, 0.256, 0.276))


@papers
def test_protocol(preset: str) -> None:
    config = preset_config(f"fairfal-{preset}")
    assert (config.data.clients, config.data.partition, config.data.alpha) == (10, "dirichlet", 0.1)
    train = config.train
    assert (train.rounds, train.local_epochs, train.batch_size, train.lr) == (100, 5, 64, 0.01)
    assert (train.momentum, train.weight_decay, train.flip) == (0.9, 1e-5, True)
    assert (config.query.label_rounds, config.query.kappa, config.query.delta) == (9, 4.0, 0.75)
