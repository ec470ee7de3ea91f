"""The options of a registry's entries as keys of one table of the run config.

Each entry of such a registry is a class with ``Options``, a frozen dataclass whose fields carry their help
and range as ``fedraw.options.option`` writes them. A table holds the options of all of them side by side, so
that a run config can name another entry without losing any; entries with an option of one name share it.
"""

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields
from typing import Annotated, Any, ClassVar, TypeVar, get_type_hints

import pydantic

from federation.config.fields import LARGEST_INTEGER, OneOf, Table, dashed
from fedraw.errors import OptionError
from fedraw.options import check_options

_RANGE = {"at_least": "ge", "above": "gt", "at_most": "le", "below": "lt"}


@dataclass(frozen=True, eq=False)
class Option:
    """One key of such a table.

    Attributes
    ----------
    name
        The field's name in the dataclasses, with underscores.
    kind
        ``int``, ``float``, ``bool`` or ``str``.
    default, help, choices
        As in the dataclass; ``choices`` is empty where it is not a choice.
    bounds
        Limits by their names in ``option``: ``at_least``, ``above``, ``at_most``, ``below``.
    of
        The entries that have it.
    """

    name: str
    kind: type
    default: Any
    help: str
    choices: tuple[str, ...]
    bounds: Mapping[str, float]
    of: tuple[str, ...]

    @property
    def pydantic_field(self) -> tuple[Any, Any]:
        """What ``pydantic.create_model`` takes for it."""
        if self.choices:
            return Annotated[str, OneOf(self.choices)], ...
        limits: dict[str, Any] = {_RANGE[bound]: limit for bound, limit in self.bounds.items()}
        if self.kind is int and not {"le", "lt"} & set(limits):
            limits["le"] = LARGEST_INTEGER
        return Annotated[self.kind, pydantic.Field(**limits)], ...


def options_of(registry: Mapping[str, Any]) -> dict[str, Option]:
    """Return the options of all entries by name, in the order in which entries bring them.

    Raises
    ------
    ValueError
        Two entries have an option of one name with another type, default or range: a table has room for one.
    """
    found: dict[str, Option] = {}
    for entry, chosen in registry.items():
        hints = get_type_hints(chosen.Options)
        for field in fields(chosen.Options):
            known, new = found.get(field.name), _option(field, hints[field.name], entry)
            if known is not None:
                for part in ("kind", "default", "choices", "bounds"):
                    if getattr(known, part) != getattr(new, part):
                        raise ValueError(
                            f"the option {field.name} has {part} {getattr(known, part)!r} at {known.of[0]} "
                            f"and {getattr(new, part)!r} at {entry}; both are one key of the run config, so "
                            "let them agree, or give one of them another name"
                        )
                new = Option(**{**vars(known), "of": (*known.of, entry)})
            found[field.name] = new
    return found


def _option(field: Field[Any], hint: Any, entry: str) -> Option:
    assert field.default is not MISSING, f"{entry}: the option {field.name} has no default"
    told = field.metadata
    kind = hint if isinstance(hint, type) else type(field.default)
    return Option(
        name=field.name,
        kind=kind,
        default=field.default,
        help=told["help"],
        choices=tuple(told["choices"]),
        bounds={bound: told[bound] for bound in _RANGE if told[bound] is not None},
        of=(entry,),
    )


class OptionTable(Table):
    """A table whose ``name`` is an entry of a registry, and whose other keys are options of its entries.

    A subclass names the table and may have keys of its own; ``option_table`` makes it whole.
    """

    table: ClassVar[str]
    registry: ClassVar[Mapping[str, Any]] = {}

    name: str

    @property
    def chosen(self) -> Any:
        """The class that ``name`` stands for."""
        return self.registry[self.name]

    @property
    def options(self) -> Any:
        """The options of the chosen entry, an instance of its ``Options``."""
        own = self.chosen.Options
        return own(**{field.name: getattr(self, field.name) for field in fields(own)})

    @pydantic.model_validator(mode="after")
    def _go_together(self) -> "OptionTable":
        try:
            check_options(self.options)
        except OptionError as error:
            key = f"{self.table}.{dashed(error.name)}"
            raise ValueError(f"{key} = {error.value!r} {error.reason}") from None
        return self

    def without_effect(self) -> dict[str, str]:
        """Return the keys that are options of other entries alone, each with the reason in words."""
        return {
            f"{self.table}.{dashed(option.name)}": (
                f"it is an option of {', '.join(option.of)}, and {self.table}.name = {self.name!r}"
            )
            for option in options_of(self.registry).values()
            if self.name not in option.of
        }


AnyTable = TypeVar("AnyTable", bound=OptionTable)


def option_table(base: type[AnyTable], entries: Mapping[str, Any]) -> type[AnyTable]:
    """Return ``base`` with the options of all entries as fields, and their names as what ``name`` allows."""
    made: dict[str, Any] = {name: option.pydantic_field for name, option in options_of(entries).items()}
    table = pydantic.create_model(
        base.__name__,
        __base__=base,
        __module__=base.__module__,
        __doc__=base.__doc__,
        name=(Annotated[str, OneOf(entries)], ...),
        **made,
    )
    table.registry = entries
    return table
