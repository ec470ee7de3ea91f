"""What the tables of the run config are made of: their base, choices out of registries, and common ranges."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

LARGEST_INTEGER = 2**63 - 1
"""The largest whole number that a run config can carry."""

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1, le=LARGEST_INTEGER)]


def dashed(name: str) -> str:
    """Return the key of a field: ``local-epochs`` for ``local_epochs``."""
    return name.replace("_", "-")


class Table(BaseModel):
    """A table of the run config; the defaults stand in ``pyproject.toml`` alone."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, alias_generator=dashed
    )


@dataclass(frozen=True, eq=False)
class OneOf:
    """Allows the names of a registry: ``Annotated[str, OneOf(MODELS)]``."""

    names: Iterable[str]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the check."""
        return core_schema.literal_schema(list(self.names))


@dataclass(frozen=True)
class Because:
    """Why a key has its range, for the message about a value outside of it."""

    reason: str
