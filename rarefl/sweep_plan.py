"""The runs of a sweep: a preset, varied keys and seeds become one checked run config per run."""

import csv
import difflib
import itertools
import os
import re
import shlex
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from federation.config.run_config import RunConfig, default_run_config, flatten, parse_run_config
from federation.errors import ConfigError

PROJECT_ROOT = Path(__file__).resolve().parent.parent

_OWN_KEYS = {
    "seed": "use --seeds",
    "output.dir": "a sweep sets it to a folder of the run's own under --out",
    "output.resume": "a sweep goes on with unfinished runs by itself",
}
_FEDERATION_KEYS = (
    "num-supernodes",
    "backend",
    "verbose",
    "client-resources-num-cpus",
    "client-resources-num-gpus",
    "init-args-num-cpus",
    "init-args-num-gpus",
    "init-args-logging-level",
    "init-args-log-to-driver",
)
_CLUSTER_KEYS = ("init-args-num-cpus", "init-args-num-gpus")


@dataclass(frozen=True)
class PlannedRun:
    """One run of a sweep.

    ``name`` is also the name of its folder under ``out``; ``varied`` has the values of the keys given to
    ``--set``, without the seed.
    """

    name: str
    out: Path
    varied: dict[str, Any]
    seed: int
    config: RunConfig

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


def read_preset(path: Path) -> dict[str, Any]:
    """Return the keys of a run-config file, flat.

    Raises
    ------
    ConfigError
        When there is no such file or it is not TOML.
    """
    try:
        with path.open("rb") as file:
            return flatten(tomllib.load(file))
    except OSError as error:
        presets = sorted(str(preset) for preset in (PROJECT_ROOT / "conf").glob("*.toml"))
        hint = f"; the presets are {', '.join(presets)}" if presets else ""
        raise ConfigError(f"cannot read {path}: {error.strerror or error}{hint}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None


def parse_settings(settings: Sequence[str]) -> dict[str, list[Any]]:
    """Return the values of each varied key, in the order of the run config's keys.

    Parameters
    ----------
    settings
        Texts ``key=value,value``; a value that has a comma itself stands in double quotes.

    Raises
    ------
    ConfigError
        When one is not of that form, or a key or value stands twice. Whether keys exist and values are
        allowed is not looked at here.
    """
    defaults = default_run_config()
    values: dict[str, list[Any]] = {}
    for setting in settings:
        key, equals, text = (part.strip() for part in setting.partition("="))
        if not key or not equals:
            raise ConfigError(f"--set {setting!r} is not of the form key=value or key=value,value")
        if key in values:
            raise ConfigError(f"--set names {key} twice; give all its values at once: {key}=value,value")
        try:
            parts = next(csv.reader([text], skipinitialspace=True), [""])
        except csv.Error as error:
            raise ConfigError(f"--set {text!r} cannot be read: {error}") from None
        values[key] = [_value(part.strip(), defaults.get(key)) for part in parts]
        _refuse_repeated(f"--set {setting}", values[key])
    order = {key: place for place, key in enumerate(defaults)}
    return dict(sorted(values.items(), key=lambda item: order.get(item[0], len(order))))


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
    _refuse_repeated(f"--seeds {text}", seeds)
    return seeds


def merge(preset: Path, values: dict[str, Any]) -> RunConfig:
    """Return the checked run config: defaults, then the preset, then single values.

    Raises
    ------
    ConfigError
        Names each key at fault, its value and what is allowed.
    """
    return parse_run_config(default_run_config() | read_preset(preset) | values)


def plan_runs(preset: Path, settings: Sequence[str], seeds: str | None, out: Path) -> list[PlannedRun]:
    """Return every run of the grid, all checked: first seed with each grid point, second seed, and so on.

    Parameters
    ----------
    preset
        Run-config file that all runs start from.
    settings
        Varied keys, see :func:`parse_settings`; the grid is their Cartesian product.
    seeds
        See :func:`parse_seeds`; without it the preset's seed.
    out
        Folder of the sweep.

    Raises
    ------
    ConfigError
        For anything wrong with any run.
    """
    varied = parse_settings(settings)
    for key, way_out in _OWN_KEYS.items():
        if key in varied:
            raise ConfigError(f"--set cannot vary {key}; {way_out}")
    base = default_run_config() | read_preset(preset)
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
        config = parse_run_config(base | values | {"seed": seed, "output.dir": str(out / name)})
        runs[name] = PlannedRun(name, out, values, seed, config)
    return list(runs.values())


def federation_config(text: str, clients: int) -> str:
    """Return what ``flwr run --federation-config`` gets for a run of so many clients.

    Raises
    ------
    ConfigError
        When the text is not ``key=value`` pairs, has a key that Flower does not know, sets
        ``num-supernodes``, or sets the size of a Ray cluster that is there already.
    """
    pairs = {"num-supernodes": str(clients), "client-resources-num-cpus": "1"}
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"--federation-config {text!r} cannot be read: {error}") from None
    for pair in words:
        key, equals, value = pair.partition("=")
        if not equals or not value:
            raise ConfigError(f"--federation-config {text!r}: {pair!r} is not of the form key=value")
        if key not in _FEDERATION_KEYS:
            near = difflib.get_close_matches(key, _FEDERATION_KEYS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the keys are {', '.join(_FEDERATION_KEYS)}"
            raise ConfigError(
                f"--federation-config: {key} is not a key of Flower's federation config; {hint}"
            )
        if key == "num-supernodes":
            raise ConfigError("--federation-config cannot set num-supernodes; it follows data.clients")
        if key in _CLUSTER_KEYS and (cluster := os.environ.get("RAY_ADDRESS", "local")) not in ("", "local"):
            raise ConfigError(
                f"--federation-config: {key} is not allowed with RAY_ADDRESS={cluster}: `ray start` said on "
                "each machine of that cluster what it has. Leave the key out, or unset RAY_ADDRESS to run on "
                "this machine alone"
            )
        if key.endswith("num-cpus") and not re.fullmatch(r"0*[1-9]\d*", value):
            raise ConfigError(
                f"--federation-config: {key}={value} is not allowed: it must be a whole number from 1"
            )
        pairs[key] = value if re.fullmatch(r"[\d.]+|true|false", value) else f'"{value}"'
    return " ".join(f"{key}={value}" for key, value in pairs.items())


def _value(text: str, default: Any) -> Any:
    """Return a value of the default's type; a text that is none stays a text, for the check to name."""
    if isinstance(default, bool):
        return {"true": True, "false": False}.get(text, text)
    if isinstance(default, int | float):
        try:
            return type(default)(text)
        except ValueError:
            return text
    return text


def _refuse_repeated(where: str, values: Sequence[Any]) -> None:
    for place, value in enumerate(values):
        if value in values[:place]:
            raise ConfigError(f"{where} has the value {value} twice")


def _name(values: dict[str, Any]) -> str:
    """Return a folder name such as ``query.name=fairfal,data.alpha=0.1,seed=1``."""
    return ",".join(f"{key}={_plain(value)}" for key, value in values.items())


def _plain(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value).removesuffix(".0")
    return re.sub(r"[^A-Za-z0-9._+-]", "-", text)
