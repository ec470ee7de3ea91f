"""A flush: the buffer becomes a version."""

import time
from typing import TYPE_CHECKING

from flwr.app import MetricRecord, RecordDict

if TYPE_CHECKING:
    from fedraw.run.loop import AsynchronousRun


def make_version(run: "AsynchronousRun") -> int:
    """Empty the buffer of a run into a new version, record who shaped it, and return its number."""
    strategy, versions = run.strategy, run.versions
    entries = run.buffer.take()
    if len(entries) < strategy.buffer_size:
        run.warn(
            "short",
            f"only {len(entries)} clients can be in the buffer, buffer_size is {strategy.buffer_size}; a "
            "version is made when each of them has sent an update",
        )
    taus = [versions.current - entry.version for entry in entries]
    began = time.perf_counter()
    factors = strategy.coefficients(entries, taus)
    arrays = versions.arrays(versions.current)
    if not strategy.timing_only:
        arrays = strategy.update(arrays, entries, factors)
    seconds = time.perf_counter() - began

    contributions = strategy.contributions(entries, factors)
    version = versions.publish(arrays)
    for entry, tau, factor in zip(entries, taus, factors.tolist(), strict=True):
        run.log("aggregate", entry.site, entry.job, version, tau, factor)
    run.log("publish", "", None, version)
    run.influence.flush(
        version=version,
        time=run.clock.now,
        sites=[entry.site for entry in entries],
        taus=taus,
        weights=contributions,
        rare=strategy.rare_group(),
        seconds=seconds,
    )
    if any(entry.metrics for entry in entries):
        run.train_metrics[version] = strategy.train_metrics_aggr_fn(
            [RecordDict({"metrics": MetricRecord(entry.metrics)}) for entry in entries],
            strategy.weighted_by_key,
        )
    return version
