"""How long jobs take in virtual time, and when a client can be reached."""

import csv
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedraw.errors import DelayError, SettingError
from fedraw.names import look_up
from fedraw.randomness import GeneratorMaker


def _positive(name: str, value: float) -> float:
    if not (value > 0 and math.isfinite(value)):
        raise SettingError(f"{name} is {value}; it must be a finite number above 0")
    return value


class DelayModel(ABC):
    """Seconds of virtual time from the dispatch of a job to its arrival."""

    @abstractmethod
    def duration(self, site: str, job: int, rng: GeneratorMaker) -> float:
        """Return the seconds of a site's job, counted from 0; ``rng`` makes this job's generator."""


class ComputeDelays(DelayModel):
    """Delays from what a job computes and sends.

    ``duration = seconds_per_example * examples * epochs / speed * noise + communication``; the models differ
    in their noise.

    Parameters
    ----------
    seconds_per_example : float
        Virtual seconds of computation for one example in one epoch at speed 1.
    communication : float
        Virtual seconds of communication of one job.
    epochs : int
        Local epochs of one job.
    examples : mapping of str to int
        Examples of each site; a site that is not there has 1.
    speeds : mapping of str to float
        Relative speed of each site; a site that is not there has 1.
    """

    def __init__(
        self,
        *,
        seconds_per_example: float = 1.0,
        communication: float = 0.0,
        epochs: int = 1,
        examples: Mapping[str, int] | None = None,
        speeds: Mapping[str, float] | None = None,
    ) -> None:
        if communication < 0 or not math.isfinite(communication):
            raise SettingError(f"communication is {communication}; it must be finite and not negative")
        self.seconds_per_example = _positive("seconds_per_example", seconds_per_example)
        self.communication = communication
        self.epochs = epochs
        self.examples = dict(examples or {})
        self.speeds = {site: _positive(f"speed of '{site}'", v) for site, v in (speeds or {}).items()}

    def duration(self, site: str, job: int, rng: GeneratorMaker) -> float:
        """Return the seconds by the formula."""
        compute = self.seconds_per_example * self.examples.get(site, 1) * self.epochs
        return compute / self.speeds.get(site, 1.0) * self.noise(rng) + self.communication

    @abstractmethod
    def noise(self, rng: GeneratorMaker) -> float:
        """Return the factor of one job on its computing time."""


class Constant(ComputeDelays):
    """Every job of a site takes the same time."""

    def noise(self, rng: GeneratorMaker) -> float:
        """Return 1."""
        return 1.0


class LogNormal(ComputeDelays):
    """Noise ``exp(sigma * N(0, 1))``: median 1."""

    def __init__(self, *, sigma: float = 0.5, **settings: Any) -> None:
        super().__init__(**settings)
        if not (sigma >= 0 and math.isfinite(sigma)):
            raise SettingError(f"sigma is {sigma}; it must be finite and not negative")
        self.sigma = sigma

    def noise(self, rng: GeneratorMaker) -> float:
        """Return a log-normal factor."""
        return float(math.exp(self.sigma * rng().standard_normal()))


class Pareto(ComputeDelays):
    """Heavy-tailed noise: Pareto with minimum 1 and tail exponent ``shape``; no mean at ``shape <= 1``."""

    def __init__(self, *, shape: float = 2.0, **settings: Any) -> None:
        super().__init__(**settings)
        self.shape = _positive("shape", shape)

    def noise(self, rng: GeneratorMaker) -> float:
        """Return a Pareto factor of at least 1."""
        return 1.0 + float(rng().pareto(self.shape))


class RareSlow(LogNormal):
    """The sites that hold rare labels are ``slow_factor`` times slower (FedRAW, arXiv 2609.07192)."""

    def __init__(
        self, *, rare_sites: Collection[str], slow_factor: float = 4.0, sigma: float = 0.0, **settings: Any
    ) -> None:
        super().__init__(sigma=sigma, **settings)
        _positive("slow_factor", slow_factor)
        for site in rare_sites:
            self.speeds[site] = self.speeds.get(site, 1.0) / slow_factor


class FromList(DelayModel):
    """Durations of a list: the k-th job of a site takes its k-th number, from the start again at the end."""

    def __init__(
        self, *, seconds: Mapping[str, Sequence[float]] | None = None, file: str | Path | None = None
    ) -> None:
        if (seconds is None) == (file is None):
            raise SettingError("from-list delays take either `seconds` or `file`, one of the two")
        self.seconds = dict(seconds) if seconds is not None else _read_seconds(Path(str(file)))

    def duration(self, site: str, job: int, rng: GeneratorMaker) -> float:
        """Return the listed seconds."""
        listed = self.of(site)
        return float(listed[job % len(listed)])

    def of(self, site: str) -> Sequence[float]:
        """Return all that is listed of a site, or raise DelayError if that is nothing."""
        listed = self.seconds.get(site)
        if not listed:
            known = ", ".join(sorted(self.seconds)[:8])
            raise DelayError(f"the list of delays has no row of site '{site}'; it has {known}")
        return listed


def _rows(path: Path, columns: tuple[str, ...]) -> list[tuple[int, dict[str, str]]]:
    """Return the rows of a CSV file with their line numbers; its header must name ``columns``."""
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            reader = csv.DictReader(stream)
            if not set(columns) <= set(reader.fieldnames or ()):
                raise DelayError(
                    f"{path}: the header is {reader.fieldnames}; it must name {', '.join(columns)}"
                )
            return [(reader.line_num, row) for row in reader]
    except OSError as error:
        raise DelayError(f"{path}: cannot be read ({error.strerror}); give an absolute path") from error


def _number(path: Path, line: int, column: str, text: str | None) -> float:
    try:
        return float(text or "")
    except ValueError:
        raise DelayError(
            f"{path}, line {line}: {column} is '{text}'; it must be a number of seconds"
        ) from None


def _read_seconds(path: Path) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {}
    for line, row in _rows(path, ("site", "seconds")):
        number = _number(path, line, "seconds", row["seconds"])
        if not (number > 0 and math.isfinite(number)):
            raise DelayError(f"{path}, line {line}: seconds is {number}; it must be finite and above 0")
        seconds.setdefault(row["site"], []).append(number)
    return seconds


class Availability(ABC):
    """When a client takes a job. A job that has begun is finished."""

    @abstractmethod
    def available_at(self, site: str, now: float, rng: GeneratorMaker) -> float:
        """Return ``now`` if the site takes a job now, else when to ask again; infinity if it never will.

        ``rng`` makes the generator of this attempt.
        """


class Always(Availability):
    """Every client takes a job at any time."""

    def available_at(self, site: str, now: float, rng: GeneratorMaker) -> float:
        """Return now."""
        return now


class Bernoulli(Availability):
    """A client takes a job with a probability, else it is asked again ``retry_after`` seconds later."""

    def __init__(self, *, probability: float = 1.0, retry_after: float = 1.0) -> None:
        if not 0.0 < probability <= 1.0:
            raise SettingError(f"probability of availability is {probability}; it must be in (0, 1]")
        self.probability = probability
        self.retry_after = _positive("retry_after", retry_after)

    def available_at(self, site: str, now: float, rng: GeneratorMaker) -> float:
        """Draw once."""
        return now if rng().random() < self.probability else now + self.retry_after


class Trace(Availability):
    """On and off times from a list or a CSV file of ``site,on,off`` in virtual seconds.

    A site is there from each ``on`` until just before its ``off``; an empty ``off`` is for ever. A site
    without a row is always there, a site after its last ``off`` never again.
    """

    def __init__(
        self,
        *,
        intervals: Mapping[str, Sequence[tuple[float, float]]] | None = None,
        file: str | Path | None = None,
    ) -> None:
        if (intervals is None) == (file is None):
            raise SettingError("availability from a trace takes either `intervals` or `file`, one of the two")
        given = intervals if intervals is not None else _read_intervals(Path(str(file)))
        self.intervals = {site: sorted(rows) for site, rows in given.items()}
        where = f"{file}: " if file is not None else ""
        for site, rows in self.intervals.items():
            for on, off in rows:
                if not on < off:
                    raise DelayError(f"{where}availability of site '{site}': on {on} is not before off {off}")
            for (on, off), (next_on, _) in itertools.pairwise(rows):
                if next_on < off:
                    raise DelayError(
                        f"{where}availability of site '{site}': the times from {on} to {off} and from "
                        f"{next_on} on overlap; join them in one row"
                    )

    def available_at(self, site: str, now: float, rng: GeneratorMaker) -> float:
        """Look the time up."""
        if site not in self.intervals:
            return now
        return min((max(on, now) for on, off in self.intervals[site] if now < off), default=math.inf)


def _read_intervals(path: Path) -> dict[str, list[tuple[float, float]]]:
    intervals: dict[str, list[tuple[float, float]]] = {}
    for line, row in _rows(path, ("site", "on", "off")):
        on = _number(path, line, "on", row["on"])
        off = _number(path, line, "off", row["off"]) if row["off"] else math.inf
        intervals.setdefault(row["site"], []).append((on, off))
    return intervals


DELAY_MODELS: dict[str, Callable[..., DelayModel]] = {
    "constant": Constant,
    "lognormal": LogNormal,
    "pareto": Pareto,
    "from-list": FromList,
    "rare-slow": RareSlow,
}
AVAILABILITIES: dict[str, Callable[..., Availability]] = {
    "always": Always,
    "bernoulli": Bernoulli,
    "trace": Trace,
}


def build_delays(name: str, **settings: Any) -> DelayModel:
    """Return the delay model of a name in ``DELAY_MODELS``."""
    model: DelayModel = look_up(DELAY_MODELS, name, "delay model")(**settings)
    return model


def build_availability(name: str, **settings: Any) -> Availability:
    """Return the availability of a name in ``AVAILABILITIES``."""
    availability: Availability = look_up(AVAILABILITIES, name, "availability")(**settings)
    return availability
