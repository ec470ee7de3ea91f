"""Names in tables: the strategies, delay models and functions that a configuration can name."""

import difflib
from collections.abc import Mapping
from typing import TypeVar

from fedraw.errors import UnknownNameError

T = TypeVar("T")


def look_up(table: Mapping[str, T], name: str, what: str) -> T:
    """Return the entry of a table, or raise UnknownNameError with the nearest name and all of them."""
    if name in table:
        return table[name]
    near = difflib.get_close_matches(name, table, n=1)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    raise UnknownNameError(f"there is no {what} '{name}'{hint} (there are {', '.join(table)})")
