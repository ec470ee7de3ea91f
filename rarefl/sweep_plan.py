"""The runs of a sweep: a preset, varied keys and seeds become one checked run config per run."""

import itertools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairfal_app.config import FairFALConfig
from federation.config.check import check_run_config
from federation.errors import ConfigError
from rarefl.settings import Given, refuse_repeated

_OWN_KEYS = {
    "seed": "use --seeds",
    "output.dir": "a sweep sets it to a folder of the run's own under --out",
    "output.resume": "a sweep goes on with unfinished runs by itself",
}


@dataclass(frozen=True)
class PlannedRun:
    """One run of a sweep.

    ``name`` is also the name of its folder under ``out``; ``varied`` has the values of the keys that
    vary, without the seed.
    """

    name: str
    out: Path
    varied: dict[str, Any]
    seed: int
    config: FairFALConfig

    @property
    def folder(self) -> Path:
        """Folder of the run's results (``output.dir``)."""
        return self.out / self.name

    @property
    def config_file(self) -> Path:
        """The whole run config as handed to ``flwr run``, and the record of what the folder holds."""
        return self.out / f"{self.name}.toml"

    @property
    def log_file(self) -> Path:
        """Everything that ``flwr run`` printed."""
        return self.out / f"{self.name}.log"


def parse_seeds(text: str) -> list[int]:
    """Return the seeds of ``"1-3"`` or ``"1,4,7"`` or ``"1-3,7"``.

    Raises
    ------
    ConfigError
        When the text is of no such form, a range runs backwards, or a seed stands twice.
    """
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part)
        if match is None:
            raise ConfigError(f"--seeds {text!r} is not a list of whole numbers such as 1-3 or 1,4,7")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ConfigError(f"--seeds {text!r} has the range {part.strip()}, which runs backwards")
        seeds += range(first, last + 1)
    refuse_repeated(f"--seeds {text}", seeds)
    return seeds


def plan_runs(given: Given, seeds: str | None, out: Path) -> list[PlannedRun]:
    """Return every run of the grid, all checked: first seed with each grid point, second seed, and so on.

    Parameters
    ----------
    given
        The preset that all runs start from, and the keys that vary; the grid is their Cartesian product.
    seeds
        See :func:`parse_seeds`; without it the preset's seed.
    out
        Folder of the sweep.

    Raises
    ------
    ConfigError
        For anything wrong with any run.
    """
    varied, base = given.values, given.base
    for key, way_out in _OWN_KEYS.items():
        if key in varied:
            raise ConfigError(f"a sweep cannot vary {key}; {way_out}")
    seed_list = [base["seed"]] if seeds is None else parse_seeds(seeds)
    out = out.expanduser().resolve()
    runs: dict[str, PlannedRun] = {}
    for seed, *point in itertools.product(seed_list, *varied.values()):
        values = dict(zip(varied, point, strict=True))
        name = _name(
            {key: value for key, value in values.items() if not key.startswith("output.")} | {"seed": seed}
        )
        if name in runs:
            raise ConfigError(f"two runs of the sweep would share the folder name {name}; vary them apart")
        config = check_run_config(
            base | values | {"seed": seed, "output.dir": str(out / name)}, FairFALConfig
        )
        runs[name] = PlannedRun(name, out, values, seed, config)
    return list(runs.values())


def _name(values: dict[str, Any]) -> str:
    """Return a folder name such as ``query.name=fairfal,data.alpha=0.1,seed=1``."""
    return ",".join(f"{key}={_plain(value)}" for key, value in values.items())


def _plain(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value).removesuffix(".0")
    return re.sub(r"[^A-Za-z0-9._+-]", "-", text)
