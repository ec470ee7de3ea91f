"""How a simulation is fitted to this machine: what ``flwr run --federation-config`` gets.

A worker is a Ray actor that computes for one client at a time. It has one CPU, and on a machine with GPUs a
share of one, so that there are as many workers as CPUs, or as clients if those are fewer.
"""

import difflib
import math
import os
import re
import shlex
from dataclasses import dataclass

import numpy as np
import torch

from federation.errors import ConfigError

FEDERATION_KEYS = (
    "num-supernodes",
    "backend",
    "verbose",
    "client-resources-num-cpus",
    "client-resources-num-gpus",
    "init-args-num-cpus",
    "init-args-num-gpus",
    "init-args-logging-level",
    "init-args-log-to-driver",
)
_CLUSTER_KEYS = ("init-args-num-cpus", "init-args-num-gpus")
_GPU_KEYS = ("client-resources-num-gpus", "init-args-num-gpus")

WORKER_GPU_BYTES = 2 * 2**30
"""Memory of a GPU that a worker is reckoned with: PyTorch's own, a small network, its batches and images."""

_MOST_WORKERS = 32  # Flower gives work to no more of them at a time
_SHARES = 10_000  # Ray knows GPUs in steps of 1/10000


@dataclass(frozen=True)
class Machine:
    """What there is to compute with: CPUs that this process may use, GPUs, and free bytes on each GPU.

    ``cluster`` is the address of a Ray cluster that is used instead (RAY_ADDRESS), which has its own.
    """

    cpus: int
    gpus: int = 0
    gpu_bytes: int = 0
    cluster: str = ""

    @classmethod
    def this(cls) -> "Machine":
        """Return this machine, as PyTorch and the operating system see it."""
        cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
        free = min((torch.cuda.mem_get_info(gpu)[0] for gpu in range(gpus)), default=0)
        address = os.environ.get("RAY_ADDRESS", "")
        return cls(cpus, gpus, free, "" if address == "local" else address)

    def workers(self, clients: int) -> int:
        """Return how many workers this machine gives a run of so many clients."""
        most = min(self.cpus, clients, _MOST_WORKERS)
        if self.gpus:
            most = min(most, self.gpus * max(1, self.gpu_bytes // WORKER_GPU_BYTES))
        return most


def gpu_share(workers_per_gpu: int) -> float:
    """Return the share of a GPU with which Flower fits so many workers on it.

    Flower carries a share in 32 bits and counts ``int(1 / share)`` workers, so that a tenth gives 9 and a
    fifth gives 4; the share is the largest of Ray's steps of 1/10000 that gives them all.
    """
    return _fitting(1 / workers_per_gpu)


def _fitting(share: float) -> float:
    """Return a share that fits as often on a GPU as ``share`` would without rounding."""
    wanted = round(1 / share) if math.isclose(round(1 / share) * share, 1, rel_tol=1e-3) else int(1 / share)
    steps = math.floor(share * _SHARES + 1e-9)
    while int(1 / float(np.float32(steps / _SHARES))) < wanted:
        steps -= 1
    return steps / _SHARES


def fitted(machine: Machine, clients: int) -> dict[str, str]:
    """Return Flower's federation config of a run of so many clients on this machine."""
    pairs = {"num-supernodes": str(clients), "client-resources-num-cpus": "1"}
    if machine.cluster:
        return pairs
    workers = machine.workers(clients)
    pairs["init-args-num-cpus"] = str(workers)
    if machine.gpus:
        pairs["client-resources-num-gpus"] = str(gpu_share(math.ceil(workers / machine.gpus)))
        pairs["init-args-num-gpus"] = str(machine.gpus)
    return pairs


def federation_config(text: str, clients: int, machine: Machine) -> str:
    """Return what ``flwr run --federation-config`` gets for a run of so many clients.

    Parameters
    ----------
    text
        ``key=value`` pairs that stand in place of what is fitted to the machine. A share of a GPU is made
        smaller by a hair where Flower would count one worker too few.

    Raises
    ------
    ConfigError
        When the text is not such pairs, has a key that Flower does not know, sets ``num-supernodes``, asks
        for a GPU that is not there, or sets the size of a Ray cluster that is there already.
    """
    given = _pairs(text)
    for key, value in given.items():
        _check_pair(key, value, machine)
    pairs = fitted(machine, clients) | given
    if "client-resources-num-cpus" in given and "init-args-num-cpus" not in given and not machine.cluster:
        pairs["init-args-num-cpus"] = str(machine.cpus)
    if 0 < (share := float(given.get("client-resources-num-gpus", 0))) < 1:
        pairs["client-resources-num-gpus"] = str(_fitting(share))
    quoted = {
        key: value if re.fullmatch(r"[\d.]+|true|false", value) else f'"{value}"'
        for key, value in pairs.items()
    }
    return " ".join(f"{key}={value}" for key, value in quoted.items())


def _pairs(text: str) -> dict[str, str]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"--federation-config {text!r} cannot be read: {error}") from None
    pairs = {}
    for pair in words:
        key, equals, value = pair.partition("=")
        if not equals or not value:
            raise ConfigError(f"--federation-config {text!r}: {pair!r} is not of the form key=value")
        pairs[key] = value
    return pairs


def _check_pair(key: str, value: str, machine: Machine) -> None:
    if key not in FEDERATION_KEYS:
        near = difflib.get_close_matches(key, FEDERATION_KEYS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"the keys are {', '.join(FEDERATION_KEYS)}"
        raise ConfigError(f"--federation-config: {key} is not a key of Flower's federation config; {hint}")
    if key == "num-supernodes":
        raise ConfigError("--federation-config cannot set num-supernodes; it follows data.clients")
    if key in _CLUSTER_KEYS and machine.cluster:
        raise ConfigError(
            f"--federation-config: {key} is not allowed with RAY_ADDRESS={machine.cluster}: `ray start` said "
            "on each machine of that cluster what it has. Leave the key out, or unset RAY_ADDRESS to run on "
            "this machine alone"
        )
    if key.endswith("num-cpus") and not re.fullmatch(r"0*[1-9]\d*", value):
        raise ConfigError(
            f"--federation-config: {key}={value} is not allowed: it must be a whole number from 1"
        )
    if key in _GPU_KEYS:
        _check_gpus(key, value, machine)


def _check_gpus(key: str, value: str, machine: Machine) -> None:
    share = key == _GPU_KEYS[0]
    if not re.fullmatch(r"\d+(\.\d+)?" if share else r"\d+", value) or 0 < float(value) < 1e-4:
        wanted = "a share of a GPU from 0.0001, or 0" if share else "a whole number"
        raise ConfigError(f"--federation-config: {key}={value} is not allowed: it must be {wanted}")
    if float(value) > machine.gpus and not machine.cluster:
        there = f"{machine.gpus} GPUs" if machine.gpus else "no GPU"
        raise ConfigError(
            f"--federation-config: {key}={value} is not allowed: PyTorch sees {there} on this machine. "
            "Leave the key out, or look at `nvidia-smi` and at `python -c 'import torch; "
            "print(torch.version.cuda)'`"
        )
