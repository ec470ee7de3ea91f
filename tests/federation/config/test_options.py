"""A table of the run config out of a registry: one key for each option, whichever entry has it."""

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from pydantic import ValidationError

from federation.config.faults import describe
from federation.config.options import OptionTable, option_table, options_of
from fedraw.options import option
from tests.federation.config.toys import TOYS, Fancy, FancyOptions, PlainOptions


class Toys(OptionTable):
    """Toys."""

    table: ClassVar[str] = "toy"
    own: int


TABLE = option_table(Toys, TOYS)
VALUES: dict[str, Any] = {
    "name": "plain",
    "own": 7,
    "share": 0.5,
    "many-things": 3,
    "manner": "slow",
    "loud": False,
}


def fault(**values: Any) -> str:
    with pytest.raises(ValidationError) as error:
        TABLE.model_validate(VALUES | {key.replace("_", "-"): value for key, value in values.items()})
    (details,) = error.value.errors()
    return describe(details, TABLE)


def test_keys_are_the_union_of_all_options() -> None:
    assert set(TABLE.model_validate(VALUES).model_dump(by_alias=True)) == set(VALUES)
    assert {name: option.of for name, option in options_of(TOYS).items()} == {
        "share": ("plain", "fancy"),
        "many_things": ("fancy",),
        "manner": ("fancy",),
        "loud": ("fancy",),
    }


def test_the_options_of_the_chosen_entry() -> None:
    assert TABLE.model_validate(VALUES | {"share": 1.0}).options == PlainOptions(share=1.0)
    fancy = TABLE.model_validate(VALUES | {"name": "fancy", "many-things": 9, "loud": True})
    assert fancy.options == FancyOptions(many_things=9, loud=True)
    assert fancy.chosen is Fancy


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"share": 0.0}, "share = 0.0 is not allowed: it must be more than 0"),
        ({"share": 1.5}, "share = 1.5 is not allowed: it must be at most 1"),
        ({"share": "half"}, "share = 'half' is not allowed: it must be a number"),
        ({"share": float("nan")}, "share = nan is not allowed: it must be a finite number"),
        ({"many_things": 0}, "many-things = 0 is not allowed: it must be at least 1"),
        ({"many_things": 2**63}, f"many-things = {2**63} is not allowed: it must be at most {2**63 - 1}"),
        ({"many_things": 1.5}, "many-things = 1.5 is not allowed: it must be a whole number"),
        ({"manner": "fastt"}, "must be one of slow, fast (did you mean 'fast'?)"),
        ({"loud": 1}, "loud = 1 is not allowed: it must be true or false"),
        ({"name": "fany"}, "name = 'fany' is not allowed: it must be one of plain, fancy (did you mean 'fan"),
    ],
)
def test_ranges_and_choices_come_from_the_options(values: dict[str, Any], message: str) -> None:
    assert message in fault(**values)


def test_what_must_hold_among_options_is_said_with_the_key() -> None:
    loud_and_fast = VALUES | {"loud": True, "manner": "fast"}
    TABLE.model_validate(loud_and_fast)  # "plain" has neither
    message = fault(name="fancy", loud=True, manner="fast")
    assert message == "toy.loud = True does not go with manner = 'fast'"


def test_options_of_other_entries_have_no_effect() -> None:
    reason = "it is an option of fancy, and toy.name = 'plain'"
    assert TABLE.model_validate(VALUES).without_effect() == {
        "toy.many-things": reason,
        "toy.manner": reason,
        "toy.loud": reason,
    }
    assert TABLE.model_validate(VALUES | {"name": "fancy"}).without_effect() == {}


@pytest.mark.parametrize(
    "other", [option(0.4, "share", above=0, at_most=1), option(0.5, "share", above=0, at_most=2)]
)
def test_entries_that_share_an_option_agree_on_it(other: Any) -> None:
    @dataclass(frozen=True)
    class Options:
        share: float = other

    class Odd:
        pass

    Odd.Options = Options  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match=r"the option share has .* at plain and .* at odd"):
        options_of(TOYS | {"odd": Odd})
