"""A flush: the buffer becomes a version."""

import time

from flwr.app import MetricRecord, RecordDict

from fedraw.run.rule import UpdateRule
from fedraw.run.state import RunState
from fedraw.strategies.settings import Settings


def make_version(state: RunState, rule: UpdateRule, settings: Settings) -> int:
    """Empty the buffer of a run into a new version, record who shaped it, and return its number."""
    versions = state.versions
    entries = state.buffer.take()
    if len(entries) < settings.buffer_size:
        state.warn(
            "short",
            f"only {len(entries)} clients can be in the buffer, buffer_size is {settings.buffer_size}; a "
            "version is made when each of them has sent an update",
        )
    taus = [versions.current - entry.version for entry in entries]
    began = time.perf_counter()
    factors = rule.coefficients(entries, taus)
    arrays = versions.arrays(versions.current)
    if not settings.timing_only:
        arrays = rule.update(arrays, entries, factors)
    seconds = time.perf_counter() - began

    contributions = rule.contributions(entries, factors)
    version = versions.publish(arrays)
    for entry, tau, factor in zip(entries, taus, factors.tolist(), strict=True):
        state.log("aggregate", entry.site, entry.job, version, tau, factor)
    state.log("publish", "", None, version)
    state.influence.flush(
        version=version,
        time=state.clock.now,
        sites=[entry.site for entry in entries],
        taus=taus,
        weights=contributions,
        rare=rule.rare_group(),
        seconds=seconds,
    )
    if any(entry.metrics for entry in entries):
        state.train_metrics[version] = settings.train_metrics_aggr_fn(
            [RecordDict({"metrics": MetricRecord(entry.metrics)}) for entry in entries],
            settings.weighted_by_key,
        )
    return version
