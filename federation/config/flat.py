"""Between nested tables and the flat mapping with dotted keys in which Flower carries a run config."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from federation.errors import ConfigError


def flatten(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return ``{"data.name": "digits"}`` for ``{"data": {"name": "digits"}}``."""
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def unflatten(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``{"data": {"name": "digits"}}`` for ``{"data.name": "digits"}``.

    Raises
    ------
    ConfigError
        A key is both a value and a table.
    """
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        table = nested
        *tables, last = key.split(".")
        for name in tables:
            table = table.setdefault(name, {})
            if not isinstance(table, dict):
                raise ConfigError(
                    f"run config: {key} cannot stand beside a value for {name}; keep one of the two"
                )
        table[last] = value
    return nested


def fields_of(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Give each dotted key of a run config, or of a table of one, with its field."""
    for field in model.model_fields.values():
        key = f"{prefix}{field.alias}"
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from fields_of(field.annotation, f"{key}.")
        else:
            yield key, field
