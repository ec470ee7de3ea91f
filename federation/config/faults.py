"""What is wrong with a run config, in words: the key, its value, what is allowed, the nearest spelling."""

import difflib
from collections.abc import Mapping
from typing import get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from datasets.names import did_you_mean
from federation.config.fields import Because, OneOf
from federation.config.flat import fields_of, flatten

_BOUNDS = {
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "finite_number": "a finite number",
    "string_pattern_mismatch": 'whole numbers with commas between them, such as "8,9"',
}
_TYPES = {
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": 'a text in quotes, such as key="text"',
}


def describe(error: ErrorDetails, model: type[BaseModel]) -> str:
    """Return the sentence for one fault that pydantic found in a run config of ``model``."""
    key = ".".join(str(part) for part in error["loc"])
    kind, context, value = error["type"], error.get("ctx", {}), error.get("input")
    fields = dict(fields_of(model))
    if kind == "extra_forbidden":
        keys = [f"{key}.{inner}" for inner in flatten(value)] if isinstance(value, Mapping) else [key]
        return "; ".join(_unknown(unknown, tuple(fields)) for unknown in keys)
    if kind == "missing":
        return f"{key} is missing; pyproject.toml has its default under [tool.flwr.app.config]"
    if kind == "value_error":
        return str(context["error"])
    if kind == "model_type":
        return f"{key} = {value!r} is not allowed: it is a table of keys, such as {key}.<key> = <value>"
    if kind == "literal_error":
        choices = choices_of(fields[key])
        hint = did_you_mean(str(value), choices)
        return f"{key} = {value!r} is not allowed: it must be one of {', '.join(choices)}{hint}"
    wanted = _BOUNDS.get(kind, _TYPES.get(kind, error["msg"])).format(**context)
    reasons = [part.reason for part in fields[key].metadata if isinstance(part, Because)]
    why = f", because {reasons[0]}" if reasons and kind in _BOUNDS else ""
    return f"{key} = {value!r} is not allowed: it must be {wanted}{why}"


def choices_of(field: FieldInfo) -> tuple[str, ...]:
    """Return the names that a key allows; none where it is not a choice."""
    for part in field.metadata:
        if isinstance(part, OneOf):
            return tuple(part.names)
    return get_args(field.annotation)


def _unknown(key: str, names: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(key, names, n=1, cutoff=0.6)
    if not near:
        near = [name for name in names if name.split(".")[-1] == key.split(".")[-1]][:1]
    hint = f"; did you mean {near[0]}?" if near else f"; the keys are {', '.join(names)}"
    return f"{key} is not a key of the run config{hint}"
