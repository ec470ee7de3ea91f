"""Who took part in a run's queries, in one line."""

from collections.abc import Mapping
from typing import Any

_MOST = 5


def participation_line(told: Mapping[str, Any] | None) -> str:
    """Return a line such as ``asked 50 times, answered 49; site-3 left out of label round 2``.

    Parameters
    ----------
    told
        ``participation`` of a ``summary.json``: ``asked`` and ``answered``, numbers of requests, and
        ``left_out``, a dictionary a time with ``site`` and ``label_round``. None, as of a run that did not
        count them, gives "".
    """
    if not told:
        return ""
    asked, answered = told["asked"], told["answered"]
    rounds: dict[str, list[int]] = {}
    for each in told.get("left_out", []):
        of_site = rounds.setdefault(str(each["site"]), [])
        if each["label_round"] not in of_site:
            of_site.append(each["label_round"])
    left_out = [f"{site} left out of {_label_rounds(sorted(rounds[site]))}" for site in sorted(rounds)]
    if len(left_out) > _MOST:
        left_out[_MOST:] = [f"{len(left_out) - _MOST} more sites left out"]
    times = "once" if asked == 1 else f"{asked} times"
    return "; ".join([f"asked {times}, answered {answered}", *left_out])


def all_answered(told: Mapping[str, Any] | None) -> bool:
    """Whether nothing is missing from what the queries of a run asked, as far as its summary tells."""
    return not told or (told["answered"] >= told["asked"] and not told.get("left_out"))


def _label_rounds(numbers: list[int]) -> str:
    if len(numbers) == 1:
        return f"label round {numbers[0]}"
    return f"label rounds {', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"
