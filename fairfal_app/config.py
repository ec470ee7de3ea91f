"""The whole run config: that of a training, and what FairFAL's label rounds need."""

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from datasets.budget import most_label_rounds
from fairfal_app.query.base import QueryModelRule
from fairfal_app.query.registry import QUERY_STRATEGIES
from federation.config.fields import Table
from federation.config.options import OptionTable, option_table
from federation.config.run_config import RunConfig


class QueryConfig(OptionTable):
    """Which images are labelled, and how many; ``QueryTable`` adds the options of all query strategies."""

    table: ClassVar[str] = "query"

    label_ratio: Annotated[float, Field(gt=0, le=1)]
    last_label_ratio: Annotated[float, Field(gt=0, le=1)]
    model: Literal["default", QueryModelRule]
    delta: Annotated[float, Field(ge=0, le=1)]

    @model_validator(mode="after")
    def _ratios(self) -> "QueryConfig":
        if self.last_label_ratio < self.label_ratio:
            raise ValueError(
                f"query.last-label-ratio = {self.last_label_ratio} is below query.label-ratio = "
                f"{self.label_ratio}; the first label round already reaches the latter"
            )
        return self

    @property
    def chosen_model(self) -> QueryModelRule:
        """The rule that chooses the query model, with ``default`` resolved for the strategy."""
        if self.model == "default":
            rule: QueryModelRule = self.chosen.default_model
            return rule
        return self.model

    @property
    def label_rounds(self) -> int:
        """Number of label rounds, or the most: see ``datasets.budget.label_rounds``."""
        return most_label_rounds(self.label_ratio, self.last_label_ratio)

    def without_effect(self) -> dict[str, str]:
        """Return the keys that the chosen strategy does not use, each with the reason in words."""
        unused = super().without_effect()
        if not self.chosen.needs_predictions:
            reason = f"query.name = {self.name!r} looks at no predictions"
            unused |= {"query.model": reason, "query.delta": reason}
        elif self.chosen_model in ("global", "local"):
            unused["query.delta"] = f"the query model is the {self.chosen_model} one at every client"
        return unused


if TYPE_CHECKING:
    QueryTable = QueryConfig
else:
    QueryTable = option_table(QueryConfig, QUERY_STRATEGIES)


class OracleConfig(Table):
    """Who answers a query."""

    name: Literal["simulated"]


class FairFALConfig(RunConfig):
    """The whole run config, for both apps; under ``app = "fedraw"`` nothing of ``query`` is used."""

    others: ClassVar[tuple[str, ...]] = ()

    query: QueryTable
    oracle: OracleConfig

    @property
    def queries(self) -> bool:
        """Whether the run has label rounds."""
        return self.app == "fairfal"

    def resolved(self) -> dict[str, Any]:
        """Return the config in tables, with what stands for something else replaced by it."""
        tables = super().resolved()
        if self.query.chosen.needs_predictions:
            tables["query"]["model"] = self.query.chosen_model
        return tables

    @property
    def length(self) -> int:
        """What a finished run must have more of to go on: label rounds, or the steps of its training."""
        return self.query.label_rounds if self.queries else super().length

    @property
    def may_be_raised(self) -> str:
        """The keys that make a run longer when it is resumed, in words."""
        return "query.last-label-ratio" if self.queries else super().may_be_raised

    def only_longer(self, key: str, before: RunConfig) -> bool:
        """Whether a key that differs from the run before makes it longer and leaves what it has done.

        Trainings of label rounds cannot be made longer: queries that were asked after one depend on it.
        """
        if key == "query.last-label-ratio":
            assert isinstance(before, FairFALConfig)
            return self.query.last_label_ratio > before.query.last_label_ratio
        return not self.queries and super().only_longer(key, before)

    def without_effect(self) -> dict[str, str]:
        """Return the keys that do nothing in this run, each with the reason in words."""
        unused = super().without_effect()
        if self.queries:
            return unused | self.query.without_effect()
        reason = f"app = {self.app!r} asks for no labels"
        keys = [f"query.{field.alias}" for field in type(self.query).model_fields.values()]
        return unused | dict.fromkeys([*keys, "train.local-only-epochs", "train.local-only-schedule"], reason)
