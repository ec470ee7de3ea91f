"""Failures of clients: what was asked, which site failed, and why, in a line that can be read."""

from collections.abc import Sequence
from dataclasses import dataclass

from flwr.app import RecordDict

from federation import records
from fedraw.failures import Kind, explain_error

__all__ = [
    "Failure",
    "Kind",
    "describe_request",
    "explain_dead_worker",
    "explain_error",
    "group_by_reason",
]


@dataclass(frozen=True)
class Failure:
    """One request that a client did not answer, or answered with nothing usable.

    Attributes
    ----------
    what
        The message type and, where it has one, the round: ``"train in round 3"``.
    site
        The name of the site.
    reason
        One line, for people.
    kind
        The sort of failure, for programs.
    """

    what: str
    site: str
    reason: str
    kind: Kind

    def __str__(self) -> str:
        return f"{self.what}: {self.site} failed: {self.reason}"


def describe_request(message_type: str, content: RecordDict) -> str:
    """Return the message type and the rounds that the request names."""
    named = ((records.LABEL_ROUND, "label round"), (records.SERVER_ROUND, "round"))
    rounds = [
        f"{word} {config[key]!r}"
        for config in content.config_records.values()
        for key, word in named
        if key in config
    ]
    return f"{message_type} in {', '.join(rounds)}" if rounds else message_type


def group_by_reason(failures: Sequence[Failure]) -> str:
    """Return one line a reason, with the sites that gave it."""
    sites: dict[str, list[str]] = {}
    for failure in failures:
        sites.setdefault(failure.reason, []).append(failure.site)
    return "\n".join(f"  {', '.join(dict.fromkeys(names))}: {reason}" for reason, names in sites.items())


def explain_dead_worker(failure: Failure) -> str:
    """Return what a dead Ray worker means for a run, and what to change."""
    return (
        f"{failure.what}: the Ray worker that ran {failure.site} died, most often because memory ran out, or "
        "its machine is gone. Flower keeps a dead worker in its pool, so every later round would silently "
        "lose clients; the run ends here instead, and goes on with output.resume.\n"
        "Where memory ran out, run fewer workers at once (--federation-config 'client-resources-num-cpus=N' "
        "with a larger N), take a smaller train.batch-size, and look into Ray's logs "
        "(/tmp/ray/session_latest/logs).\n"
        f"Ray says: {failure.reason}"
    )
