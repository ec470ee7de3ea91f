"""What a run is said to take, against numbers worked out by hand."""

import io

import pytest
import torch
from rich.console import Console

from datasets.federated import FederatedData
from rarefl.checks import check_data
from rarefl.dry_run import client_table, estimate_lines, show_dry_run
from rarefl.estimate import ENGINE_BYTES, Speed, Work, measure, memory_of, seconds_of, work_of
from rarefl.machine import Machine
from rarefl.settings import Given, read_words

# 580 images of digits at 5 clients, 116 each; 360 test images.
DIGITS = ("data.partition=iid", "train.rounds=10", "train.local-epochs=2", "train.batch-size=50")


def given(*words: str) -> tuple[Given, FederatedData]:
    settings = read_words([*DIGITS, *words])
    return settings, check_data(settings.config())


def work(*words: str) -> Work:
    settings, data = given(*words)
    assert [len(pool) for pool in data.pools] == [116] * 5
    assert len(data.test) == 360
    return work_of(settings.config(), data)


def test_rounds_on_all_labels() -> None:
    # 3 batches an epoch, 2 epochs, 10 rounds, 5 clients; measured in rounds 5 and 10, and after the last.
    found = work("app=fedraw", "evaluate.every=5")
    assert (found.steps, found.images, found.longest_steps, found.longest_images) == (300, 0, 60, 0)
    assert found.evaluated == 3 * 360
    assert work("app=fedraw", "strategy.participation=0.4").steps == 120


def test_versions_take_as_many_updates_as_rounds_would() -> None:
    # 10 rounds of 5 clients are 50 updates, 25 versions of 2; each 3 batches, 2 epochs.
    found = work("app=fedraw", "strategy.name=fedbuff", "strategy.buffer-size=2")
    assert (found.steps, found.longest_steps) == (300, 0)


def test_label_rounds_grow_and_queries_stand_between_them() -> None:
    # 11 labels a client and label round: 11, 22, 33, one batch each; 2 epochs, 10 rounds, 5 clients.
    ratios = ("query.label-ratio=0.1", "query.last-label-ratio=0.3")
    found = work("query.name=random", *ratios)
    assert (found.steps, found.images) == (3 * 2 * 10 * 5, 0)
    # Entropy looks at what is not labelled yet after the first and the second training: 105 and 94 images.
    found = work("query.name=entropy", *ratios)
    assert (found.steps, found.images) == (300, 5 * (105 + 94))
    # FairFAL trains a local-only model for 4 epochs at most before each query, measures it, and looks twice.
    found = work("query.name=fairfal", "train.local-only-epochs=4", *ratios)
    assert found.steps == 300 + 2 * 4 * 5
    assert found.images == 5 * (4 * (11 + 22) + 2 * 2 * 116)


def test_time_is_that_of_workers_side_by_side() -> None:
    done = Work(steps=100, images=1000, longest_steps=60, longest_images=100, evaluated=400)
    speed = Speed(step=0.1, image=0.01, memory=10**9, device="cpu")
    assert seconds_of(done, speed, workers=1, gpus=0, cpus=4) == pytest.approx(10 + 10 + 1)
    assert seconds_of(done, speed, workers=2, gpus=0, cpus=4) == pytest.approx(10 + 1)
    # With a worker for each client, a round waits for the one with most.
    assert seconds_of(done, speed, workers=9, gpus=0, cpus=4) == pytest.approx(6 + 1 + 1)
    assert seconds_of(done, speed, workers=8, gpus=2, cpus=4) == pytest.approx(10 + 4)
    assert memory_of(speed, workers=2) == 3 * 10**9 + ENGINE_BYTES


def test_the_speed_is_measured_and_the_threads_stay() -> None:
    threads = torch.get_num_threads()
    settings, data = given("app=fedraw", "train.lr=1e30")  # a step at any rate takes as long
    speed = measure(settings.config(), data)
    assert 0 < speed.image < speed.step < 60
    assert speed.memory > 10**7
    assert torch.get_num_threads() == threads


def test_a_client_holds_so_many_images_and_may_buy_so_many_labels() -> None:
    settings, data = given("query.label-ratio=0.2", "query.last-label-ratio=1.0")
    table = client_table(settings.config(), data)
    columns = {str(column.header): list(column.cells) for column in table.columns}
    assert columns["client"] == [f"site-{client:02d}" for client in range(5)]
    assert columns["images"] == ["116"] * 5
    assert columns["budget a label round"] == ["23"] * 5
    assert columns["labelled after 5"] == ["115"] * 5
    assert set(columns["rare labels"]) == {", ".join(map(str, data.rare_labels))}
    assert sum(map(int, columns["test images"])) == 360

    settings, data = given("app=fedraw")
    assert "budget a label round" not in [c.header for c in client_table(settings.config(), data).columns]


def test_a_dry_run_tells_settings_clients_time_and_memory() -> None:
    settings, data = given("query.name=random")
    printed = io.StringIO()
    show_dry_run(
        settings.config(), settings, data, Machine(2), "num-supernodes=5", Console(file=printed, width=120)
    )
    told = printed.getvalue()
    for part in ("train.batch-size", "site-04", "'num-supernodes=5'", "time: about", "memory: about"):
        assert part in told
    assert told.endswith("nothing was started\n")
    time, memory = estimate_lines(settings.config(), data, Machine(2))
    assert "600 SGD steps of 50 images" in time
    assert "as just measured on cpu, on 2 workers" in time
    assert "2 workers and the server with" in memory
