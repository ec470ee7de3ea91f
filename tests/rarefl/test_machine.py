"""What Flower is told about a machine."""

import numpy as np
import pytest

from federation.errors import ConfigError
from rarefl.machine import WORKER_GPU_BYTES, Machine, federation_config, gpu_share

CPUS = Machine(4)
GPU = Machine(16, 1, 64 * 2**30)
CLUSTER = Machine(4, cluster="10.0.0.1:6379")


def fits(share: float, gpus: int = 1) -> int:
    """Return how many workers Flower counts: it carries the share in 32 bits and cuts off the fraction."""
    return int(gpus / float(np.float32(share)))


@pytest.mark.parametrize("workers", range(1, 65))
def test_as_many_workers_fit_on_a_gpu_as_were_meant(workers: int) -> None:
    share = gpu_share(workers)
    assert fits(share) == workers
    assert (share * 10_000) == pytest.approx(round(share * 10_000), abs=1e-9)  # Ray's steps
    assert share == pytest.approx(1 / workers, abs=2e-4)


def test_a_tenth_and_a_fifth_alone_would_lose_a_worker() -> None:
    assert (fits(0.1), fits(0.2)) == (9, 4)
    assert (gpu_share(10), gpu_share(5)) == (0.0999, 0.1999)


def test_a_worker_has_a_cpu_and_no_client_is_without_a_use_for_it() -> None:
    assert federation_config("", 10, CPUS) == (
        "num-supernodes=10 client-resources-num-cpus=1 init-args-num-cpus=4"
    )
    assert federation_config("", 3, CPUS).endswith(" init-args-num-cpus=3")
    assert Machine(100).workers(100) == 32  # Flower gives work to no more at a time


def test_workers_share_the_gpus_that_there_are() -> None:
    assert federation_config("", 10, GPU) == (
        "num-supernodes=10 client-resources-num-cpus=1 init-args-num-cpus=10 "
        "client-resources-num-gpus=0.0999 init-args-num-gpus=1"
    )
    two = Machine(16, 2, 64 * 2**30)
    assert "init-args-num-cpus=10 client-resources-num-gpus=0.1999 init-args-num-gpus=2" in (
        federation_config("", 10, two)
    )
    assert fits(0.1999, 2) == 10


def test_a_small_gpu_takes_fewer_workers_and_at_least_one() -> None:
    assert Machine(16, 1, 3 * WORKER_GPU_BYTES).workers(10) == 3
    assert Machine(16, 2, 3 * WORKER_GPU_BYTES).workers(10) == 6
    assert Machine(16, 1, WORKER_GPU_BYTES // 2).workers(10) == 1


def test_what_is_given_stands() -> None:
    assert federation_config(
        "client-resources-num-cpus=2  client-resources-num-gpus=0.5 backend=ray", 4, GPU
    ) == (
        "num-supernodes=4 client-resources-num-cpus=2 init-args-num-cpus=16 client-resources-num-gpus=0.5 "
        'init-args-num-gpus=1 backend="ray"'
    )
    assert "init-args-num-cpus=8" in federation_config("init-args-num-cpus=8", 4, CPUS)
    assert "client-resources-num-gpus=0 " in federation_config("client-resources-num-gpus=0", 4, GPU)


@pytest.mark.parametrize(
    ("given", "told"), [("0.1", "0.0999"), ("0.2", "0.1999"), ("0.25", "0.25"), ("0.3", "0.3")]
)
def test_a_given_share_that_would_lose_a_worker_is_made_smaller(given: str, told: str) -> None:
    pairs = federation_config(f"client-resources-num-gpus={given}", 10, GPU).split()
    assert f"client-resources-num-gpus={told}" in pairs
    assert fits(float(told)) == int(1 / float(given))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("num-supernodes=3", "follows data.clients"),
        ("client-resources-num-cpu=1", "did you mean client-resources-num-cpus"),
        ("client-resources-num-cpus=0.5", "must be a whole number from 1"),
        ("client-resources-num-cpus = 1", "not of the form key=value"),
        ("client-resources-num-gpus=half", "must be a share of a GPU"),
        ("client-resources-num-gpus=0.00001", "must be a share of a GPU"),
        ("init-args-num-gpus=0.5", "must be a whole number"),
        ("client-resources-num-gpus=0.1", "num-gpus=0.1 is not allowed: PyTorch sees no GPU on this machine"),
        ("init-args-num-gpus=1", "PyTorch sees no GPU"),
        ("backend='", "cannot be read"),
    ],
)
def test_a_bad_federation_config_is_named(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        federation_config(text, 4, CPUS)


def test_more_gpus_than_there_are_are_named() -> None:
    with pytest.raises(ConfigError, match="sees 1 GPUs"):
        federation_config("init-args-num-gpus=2", 4, GPU)


def test_a_cluster_that_is_there_keeps_its_size() -> None:
    assert federation_config("", 4, CLUSTER) == "num-supernodes=4 client-resources-num-cpus=1"
    assert "num-gpus=0.5" in federation_config("client-resources-num-gpus=0.5", 4, CLUSTER)
    with pytest.raises(ConfigError, match="init-args-num-cpus is not allowed with RAY_ADDRESS=10"):
        federation_config("init-args-num-cpus=2", 4, CLUSTER)


@pytest.mark.parametrize(
    ("address", "cluster"), [("10.0.0.1:6379", "10.0.0.1:6379"), ("local", ""), ("", "")]
)
def test_the_cluster_is_that_of_the_environment(
    address: str, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", address)
    machine = Machine.this()
    assert machine.cluster == cluster
    assert machine.cpus >= 1
