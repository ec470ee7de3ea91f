"""Error replies: which sort of failure each is, and its reason in a line that can be read."""

import re
from typing import Literal

from flwr.app import Error
from flwr.common.constant import ErrorCode

LONGEST_REASON = 300

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


def shorten(text: str) -> str:
    """Return a text as one line of bounded length."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_REASON else f"{line[: LONGEST_REASON - 4]} ..."


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
