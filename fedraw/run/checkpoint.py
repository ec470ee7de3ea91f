"""The state of a run as named arrays and a dictionary for JSON, and back."""

import math
from dataclasses import asdict
from typing import Any

import numpy as np
from flwr.app import MetricRecord

from fedraw.aggregation import Arrays
from fedraw.clock import Job
from fedraw.errors import CheckpointError
from fedraw.run.buffer import Entry
from fedraw.run.influence import Influence
from fedraw.run.state import RunState
from fedraw.run.versions import VersionStore


def pack(run: RunState) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the state of a run. The arrays are the run's own, which it never changes in place."""
    arrays: dict[str, np.ndarray] = {}
    for version in run.versions.kept():
        arrays |= {f"version/{version}/{key}": a for key, a in run.versions.arrays(version).items()}
    entries = []
    for i, entry in enumerate(run.buffer):
        arrays |= {f"buffer/{i}/delta/{key}": a for key, a in entry.deltas.items()}
        arrays |= {f"buffer/{i}/value/{key}": a for key, a in entry.values.items()}
        entries.append(
            {name: getattr(entry, name) for name in ("site", "job", "version", "sequence", "metrics")}
            | {"examples": entry.examples, "merged": entry.merged}
        )
    state = {
        "version": run.versions.current,
        "versions": run.versions.kept(),
        "sequence": run.sequence,
        "draws": run.draws,
        "clock": run.clock.state(),
        "clients": run.roster.state(),
        "jobs": [_pack_job(job) for job in run.jobs.values()],
        "buffer": entries,
        "influence": run.influence.state(),
        "train_metrics": pack_metrics(run.train_metrics),
        "client_metrics": pack_metrics(run.client_metrics),
        "server_metrics": pack_metrics(run.server_metrics),
    }
    return arrays, state


def unpack(run: RunState, arrays: dict[str, np.ndarray], state: dict[str, Any]) -> None:
    """Put a fresh run into a state.

    Raises
    ------
    CheckpointError
        The checkpoint's arrays are not those of the model that the run was started with.
    """
    expected = run.versions.arrays(0)
    versions = {version: under(arrays, f"version/{version}/") for version in state["versions"]}
    check_shapes(expected, versions[state["version"]])
    run.versions = VersionStore.restored(versions, state["version"])
    run.sequence, run.draws = state["sequence"], state["draws"]
    run.clock.restore(state["clock"])
    run.roster.restore(state["clients"])
    for i, record in enumerate(state["buffer"]):
        run.buffer.add(
            Entry(
                **record,
                deltas=under(arrays, f"buffer/{i}/delta/"),
                values=under(arrays, f"buffer/{i}/value/"),
            )
        )
    run.influence = Influence.restored(state["influence"])
    run.train_metrics.update(unpack_metrics(state["train_metrics"]))
    run.client_metrics.update(unpack_metrics(state["client_metrics"]))
    run.server_metrics.update(unpack_metrics(state["server_metrics"]))
    jobs = [_unpack_job(record) for record in state["jobs"]]
    if run.clock.virtual:
        for job in jobs:
            run.jobs[job.sequence] = job
            run.versions.acquire(job.version)
    else:
        run.influence.abandoned += len(jobs)
        for client in run.roster.clients.values():
            client.state, client.free_since = "idle", run.clock.now
    run.versions.prune()


def check_shapes(expected: Arrays, found: Arrays) -> None:
    """Raise CheckpointError unless a checkpoint has the arrays that are expected."""
    for key in expected.keys() | found.keys():
        here = expected[key].shape if key in expected else None
        there = found[key].shape if key in found else None
        if here != there:
            raise CheckpointError(
                f"'{key}' has shape {there} in the checkpoint and {here} in the model (None: not there); "
                "resume with the model that the run was started with"
            )


def _pack_job(job: Job) -> dict[str, Any]:
    record = asdict(job)
    del record["node"], record["message_id"]
    record["deadline"] = None if math.isinf(job.deadline) else job.deadline
    return record


def _unpack_job(record: dict[str, Any]) -> Job:
    deadline = math.inf if record["deadline"] is None else record["deadline"]
    return Job(**{**record, "deadline": deadline}, node=0)


def pack_metrics(metrics: dict[int, MetricRecord]) -> list[list[Any]]:
    """Return records by version as JSON."""
    return [[version, dict(record)] for version, record in sorted(metrics.items())]


def unpack_metrics(records: list[list[Any]]) -> dict[int, MetricRecord]:
    """Return what ``pack_metrics`` packed."""
    return {version: MetricRecord(record) for version, record in records}


def under(arrays: dict[str, np.ndarray], prefix: str) -> Arrays:
    """Return the arrays under a prefix, without it."""
    return {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}
