"""Names in tables: the strategies, delay models and functions that a configuration can name."""

import difflib
from collections.abc import Iterable, Mapping
from typing import TypeVar

from fedraw.errors import UnknownNameError

T = TypeVar("T")


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return "; did you mean 'NAME'?" with the nearest of the names, or nothing."""
    near = difflib.get_close_matches(name, list(names), n=1)
    return f"; did you mean '{near[0]}'?" if near else ""


def look_up(table: Mapping[str, T], name: str, what: str) -> T:
    """Return the entry of a table, or raise UnknownNameError with the nearest name and all of them."""
    if name in table:
        return table[name]
    raise UnknownNameError(
        f"there is no {what} '{name}'{did_you_mean(name, table)} (there are {', '.join(table)})"
    )
