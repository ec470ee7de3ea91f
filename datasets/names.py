"""Misspelt names: the nearest known one, and the sentence that tells it."""

import difflib
from collections.abc import Iterable


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the known name that looks most like ``name``, whatever its letter case; None if none does."""
    by_fold = {known.casefold(): known for known in reversed([*names])}
    near = difflib.get_close_matches(name.casefold(), by_fold, n=1)
    return by_fold[near[0]] if near else None


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return " (did you mean 'X'?)" for the end of a clause; "" where no known name is near."""
    near = nearest(name, names)
    return "" if near is None else f" (did you mean {near!r}?)"


def unknown(what: str, name: str, names: Iterable[str]) -> str:
    """Return the sentence that there is no such ``what``, with the nearest name and all that there are."""
    known = [*names]
    near = nearest(name, known)
    hint = "" if near is None else f"; did you mean {near!r}?"
    return f"there is no {what} {name!r}{hint} (there are {', '.join(known)})"
