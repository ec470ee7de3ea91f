"""The table ``clock`` of the run config, and which of its keys a delay model or an availability uses."""

import inspect
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from federation.config.fields import NotNegative, OneOf, Positive, Table, dashed
from fedraw.delays import AVAILABILITIES, DELAY_MODELS

# The parameter of a delay model, or of an availability, that takes the value of a field.
_DELAYS = {
    "seconds_per_example": "seconds_per_example",
    "communication": "communication",
    "sigma": "sigma",
    "pareto_shape": "shape",
    "slow_factor": "slow_factor",
    "delays_file": "file",
}
_AVAILABILITY = {"probability": "probability", "ask_again": "retry_after", "availability_file": "file"}
# A field that decides a parameter in a roundabout way.
_SPEEDS = {"speed_sigma": "speeds"}


@cache
def parameters(kind: Any) -> frozenset[str]:
    """Return the keyword arguments that a class takes, those that it hands on to its bases included."""
    return frozenset(
        name
        for base in inspect.getmro(kind)
        if "__init__" in vars(base) and base is not object
        for name in inspect.signature(vars(base)["__init__"]).parameters
    )


class ClockConfig(Table):
    """Which time passes in an asynchronous run, and how long jobs take in computed time."""

    name: Literal["virtual", "wall"]
    dispatch: Literal["available", "random"]
    timing_only: bool
    job_timeout: NotNegative
    delays: Annotated[str, OneOf(DELAY_MODELS)]
    seconds_per_example: Positive
    communication: NotNegative
    speed_sigma: NotNegative
    sigma: NotNegative
    pareto_shape: Positive
    slow_factor: Positive
    delays_file: str
    availability: Annotated[str, OneOf(AVAILABILITIES)]
    probability: Annotated[float, Field(gt=0, le=1)]
    ask_again: Positive
    availability_file: str

    @property
    def virtual(self) -> bool:
        """Whether time is computed."""
        return self.name == "virtual"

    @property
    def delay_settings(self) -> dict[str, Any]:
        """The arguments of the delay model that stand in this table."""
        return self._settings(DELAY_MODELS[self.delays], _DELAYS)

    @property
    def availability_settings(self) -> dict[str, Any]:
        """The arguments of the availability."""
        return self._settings(AVAILABILITIES[self.availability], _AVAILABILITY)

    def _settings(self, kind: Any, names: dict[str, str]) -> dict[str, Any]:
        taken = parameters(kind)
        return {parameter: getattr(self, field) for field, parameter in names.items() if parameter in taken}

    def without_effect(self) -> dict[str, str]:
        """Return the keys that the chosen clock, delays and availability do not use, each with the reason."""
        unused: dict[str, str] = {}
        real_time = f"it is for computed time, and clock.name = {self.name!r}"
        for key, kind, names in (
            ("delays", DELAY_MODELS[self.delays], _DELAYS | _SPEEDS),
            ("availability", AVAILABILITIES[self.availability], _AVAILABILITY),
        ):
            taken = parameters(kind)
            for field, parameter in names.items():
                if not self.virtual:
                    unused[f"clock.{dashed(field)}"] = real_time
                elif parameter not in taken:
                    unused[f"clock.{dashed(field)}"] = f"clock.{key} = {getattr(self, key)!r} does not use it"
            if not self.virtual:
                unused[f"clock.{key}"] = real_time
        return unused

    @model_validator(mode="after")
    def _files(self) -> "ClockConfig":
        if self.timing_only and not self.virtual:
            raise ValueError(
                "clock.timing-only = true needs clock.name = 'virtual': real time passes by training only"
            )
        for key, settings in (
            ("delays", self.delay_settings),
            ("availability", self.availability_settings),
        ):
            if "file" in settings and not Path(settings["file"]).is_absolute():
                raise ValueError(
                    f"clock.{key} = {getattr(self, key)!r} needs clock.{key}-file, the absolute path of a "
                    f"CSV file, not {settings['file']!r}"
                )
        return self
