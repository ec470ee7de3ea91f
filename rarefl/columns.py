"""The columns of ``results.csv``: what sweeps and reports tell of a run, and how each number is shown.

Those of models come from the table of measures, so that a measure has its column here as soon as it is there.
"""

from dataclasses import dataclass

from federation import measures
from federation.measures import Measure


@dataclass(frozen=True)
class Column:
    """A column and how it is shown.

    Attributes
    ----------
    scale
        The shown number is so many times the column's: 100 makes percent of shares.
    better
        1 where more is better, -1 where less is, 0 where it is neither.
    """

    name: str
    heading: str
    scale: float = 100.0
    decimals: int = 1
    better: int = 1


BOUGHT = Column("rare_label_share", "rare labels bought %")
SECONDS = Column("seconds", "seconds a run", 1.0, 0, 0)
VERSIONS = Column("version", "versions", 1.0, 0, 0)
INFLUENCE = (
    Column("rare_share_of_updates", "participations of rare sites %", better=0),
    Column("rare_share_of_weight", "weight of rare sites %", better=0),
    Column("replaced_per_flush", "updates replaced a flush", 1.0, 2, 0),
)
"""Who shaped the models of trainings."""

TIME_TO = "time_to_"
"""Start of the columns with the times at which a training reached accuracies."""

_INFLUENCE_NAMES = (
    *("aggregated", "replaced_per_flush", "rare_share_of_clients", "rare_share_of_updates"),
    "rare_share_of_weight",
)


def round_columns() -> tuple[str, ...]:
    """Return the names of the columns that a label round has, all but ``seconds``."""
    place = ("label_round", "label_ratio", "labelled")
    return (*place, *_of_models(), BOUGHT.name, *_INFLUENCE_NAMES)


def training_columns() -> tuple[str, ...]:
    """Return the names of the columns that a training has, all but ``time_to_...`` and ``seconds``."""
    return (VERSIONS.name, "time", *_of_models(), *_INFLUENCE_NAMES)


def curve_columns() -> tuple[Column, ...]:
    """Return the measures that are shown after each label round."""
    return tuple(_column(each, each.name) for each in measures.MEASURES if each.curve)


def last_columns() -> tuple[Column, ...]:
    """Return the means of the last evaluations, by which trainings are compared."""
    return tuple(_column(each, each.last_name) for each in measures.MEASURES if each.last)


def _of_models() -> list[str]:
    last = [each.last_name for each in measures.MEASURES if each.last]
    return [each.name for each in measures.MEASURES] + last


def _column(measure: Measure, name: str) -> Column:
    return Column(name, measure.heading, measure.scale, measure.decimals, measure.better)
