"""Strategies that only have options, for tests of the tables that are built from options."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from fedraw.errors import OptionError
from fedraw.options import option


@dataclass(frozen=True)
class Common:
    share: float = option(0.5, "share of something", above=0, at_most=1)

    def check(self) -> None:
        """Nothing else."""


@dataclass(frozen=True)
class PlainOptions(Common):
    pass


@dataclass(frozen=True)
class FancyOptions(Common):
    many_things: int = option(3, "how many", at_least=1)
    manner: Literal["slow", "fast"] = option("slow", "how: slow | fast", choices=("slow", "fast"))
    loud: bool = option(False, "say so")

    def check(self) -> None:
        if self.loud and self.manner == "fast":
            raise OptionError("loud", True, "does not go with manner = 'fast'")


class Plain:
    """Does the plain thing."""

    paper: ClassVar[str] = "arXiv 0000.00001"
    Options = PlainOptions


class Fancy:
    """Does the fancy thing."""

    paper: ClassVar[str] = "arXiv 0000.00002"
    Options = FancyOptions


TOYS = {"plain": Plain, "fancy": Fancy}
