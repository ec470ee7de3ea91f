"""Failures of clients: what was asked, which site failed, and why, in a line that can be read."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from flwr.app import Error, RecordDict
from flwr.common.constant import ErrorCode

from federation import records
from federation.messages.replies import shorten

Kind = Literal[
    "raised", "time-out", "not delivered", "expired", "node gone", "crashed", "unusable", "dead worker"
]

_KINDS: dict[int, Kind] = {
    ErrorCode.UNKNOWN: "dead worker",
    ErrorCode.MESSAGE_UNAVAILABLE: "expired",
    ErrorCode.REPLY_MESSAGE_UNAVAILABLE: "expired",
    ErrorCode.NODE_UNAVAILABLE: "node gone",
    ErrorCode.CLIENT_APP_CRASHED: "crashed",
}

_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_ACTOR_DETAILS = re.compile(r"\n\t\w+: [^\n]*")  # ids and addresses that Ray puts before the cause
_FLOWER_REASON = re.compile(r"^<class '(?P<type>[^']+)'>:<'(?P<text>.*)'>$", re.DOTALL)
_MESSAGE_OF_CLIENT = "Exception ClientAppException occurred. Message:"


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


def explain_error(error: Error) -> tuple[str, Kind]:
    """Return a one-line reason and the kind of an error reply.

    In simulation the reason that Flower gives is a coloured traceback of several processes; what is kept is
    the client's own exception.
    """
    reason = _ACTOR_DETAILS.sub("", _COLOURS.sub("", error.reason or ""))
    kind: Kind = "dead worker" if "ActorDiedError" in reason else _KINDS.get(error.code, "raised")
    return shorten(_innermost(reason)) or f"no reason given (Flower's error code {error.code})", kind


def _innermost(reason: str) -> str:
    parts = _FLOWER_REASON.match(reason)
    if parts is None:
        return reason
    text, name = parts["text"], parts["type"].rpartition(".")[2]
    traceback, found, message = text.rpartition(_MESSAGE_OF_CLIENT)
    if not found:
        return f"{name}: {text}" if text.strip() else name
    # The traceback names the exception's type, which the message does not: it ends the part before Ray's own.
    message = message.strip()
    first = re.escape(message.partition("\n")[0])
    pattern = rf"^([A-Za-z_][\w.]*): {first}" if message else r"^([A-Za-z_][\w.]*)$"
    types = re.findall(pattern, traceback, re.MULTILINE)
    name = types[-1].rpartition(".")[2] if types else "exception"
    return f"{name}: {message}" if message else name


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
