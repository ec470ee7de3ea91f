"""Settings as they are typed: a preset and ``KEY=VALUE`` words, in the same way for every command.

A preset is a run-config file, or the name of one in ``conf/``. Without a preset the defaults of
``pyproject.toml`` stand.
"""

import csv
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets.names import nearest
from fairfal_app.config import FairFALConfig
from federation.config.check import check_run_config
from federation.config.run_config import default_run_config, flatten
from federation.errors import ConfigError
from federation.runs.run_folder import CONFIG

PROJECT_ROOT = Path(__file__).resolve().parent.parent
PRESETS = PROJECT_ROOT / "conf"

_KEY = re.compile(r"[A-Za-z][\w-]*(\.[\w-]+)*")


@dataclass(frozen=True)
class Given:
    """What was typed: a preset, if any, and the values of each key, in the order of the run config's keys."""

    preset: Path | None
    values: dict[str, list[Any]]

    @property
    def name(self) -> str:
        """What the settings are called: the preset's name, or ``defaults``."""
        return self.preset.stem if self.preset else "defaults"

    @property
    def base(self) -> dict[str, Any]:
        """The defaults with the preset's values in their place, flat."""
        return default_run_config() | (read_preset(self.preset) if self.preset else {})

    @property
    def single(self) -> dict[str, Any]:
        """The one value of each key.

        Raises
        ------
        ConfigError
            A key has several, which is for a sweep alone.
        """
        for key, values in self.values.items():
            if len(values) > 1:
                raise ConfigError(
                    f"{key} has {len(values)} values: {', '.join(map(str, values))}; give one here, vary it "
                    f'with `rarefl sweep`, or write {key}="..." for a value with a comma in it'
                )
        return {key: values[0] for key, values in self.values.items()}

    def config(self) -> FairFALConfig:
        """Return the checked run config: defaults, then the preset, then single values.

        Raises
        ------
        ConfigError
            Names each key at fault, its value and what is allowed.
        RunFolderError
            A folder is not an absolute path.
        """
        return check_run_config(self.base | self.single, FairFALConfig)


def read_words(words: Sequence[str], more: Sequence[str] = ()) -> Given:
    """Return what ``[PRESET] [KEY=VALUE ...]`` gives; ``more`` are further ``KEY=VALUE`` words.

    Raises
    ------
    ConfigError
        A word is neither, a second preset is given, or a key or value stands twice. Whether keys exist and
        values are allowed is not looked at here.
    """
    presets = [path for word in words if (path := _preset(word)) is not None]
    for path in presets:
        if not path.is_file():
            read_preset(path)
    if len(presets) > 1:
        raise ConfigError(f"give one preset, not {len(presets)}: {', '.join(map(str, presets))}")
    settings = [word for word in words if _preset(word) is None]
    return Given(presets[0] if presets else None, parse_settings([*settings, *more]))


def _preset(word: str) -> Path | None:
    """Return the run-config file that a word names, there or not; None for ``KEY=VALUE``."""
    path = Path(word).expanduser()
    if path.is_file():  # also one with an equals sign in its name, as a sweep writes
        return path
    key, equals, _ = word.partition("=")
    if equals and "/" not in key:
        return None
    named = PRESETS / f"{word}.toml"
    return named if named.is_file() else path


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
        presets = {preset.stem: preset for preset in sorted(PRESETS.rglob("*.toml"))}
        near = nearest(path.stem, presets)
        hint = f"did you mean {near}?" if near else f"the presets are {', '.join(presets)}."
        raise ConfigError(
            f"cannot read {path}: {error.strerror or error}; {hint} A setting is written KEY=VALUE"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None


def parse_settings(settings: Sequence[str]) -> dict[str, list[Any]]:
    """Return the values of each key, in the order of the run config's keys.

    Parameters
    ----------
    settings
        Texts ``key=value`` or ``key=value,value``; a value that has a comma itself stands in double quotes.

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
        if not equals or not _KEY.fullmatch(key):
            raise ConfigError(f"{setting!r} is neither a run-config file nor of the form key=value")
        if key in values:
            raise ConfigError(f"{key} is given twice; give all its values at once: {key}=value,value")
        try:
            parts = next(csv.reader([text], skipinitialspace=True), [""])
        except csv.Error as error:
            raise ConfigError(f"{setting!r} cannot be read: {error}") from None
        values[key] = [_value(part.strip(), defaults.get(key)) for part in parts]
        refuse_repeated(setting, values[key])
    order = {key: place for place, key in enumerate(defaults)}
    return dict(sorted(values.items(), key=lambda item: order.get(item[0], len(order))))


def _value(text: str, default: Any) -> Any:
    """Return a value of the default's type; a text that is none stays a text, for the check to name."""
    if len(text) > 1 and text[0] == text[-1] == "'":  # quotes of a TOML text, which are not needed
        text = text[1:-1]
    if isinstance(default, bool):
        return {"true": True, "false": False}.get(text, text)
    if isinstance(default, int | float):
        try:
            return type(default)(text)
        except ValueError:
            return text
    return text


def refuse_repeated(where: str, values: Sequence[Any]) -> None:
    """Raise ConfigError when a value stands twice."""
    for place, value in enumerate(values):
        if value in values[:place]:
            raise ConfigError(f"{where} has the value {value} twice")


def resumed(folder: Path, given: Given) -> Given:
    """Return the settings with which the run in a folder goes on: its own, with single values in place.

    Raises
    ------
    ConfigError
        A preset is given as well, or the folder holds no run.
    """
    if given.preset is not None:
        raise ConfigError(
            f"--resume takes the settings of {folder / CONFIG}; leave {given.preset} out, and give "
            "KEY=VALUE for what is to be raised"
        )
    folder = folder.expanduser().absolute()
    if not (folder / CONFIG).is_file():
        raise ConfigError(
            f"--resume {folder}: there is no run: it has no {CONFIG}. Give the folder that the run told at "
            "its start; `rarefl list runs` shows them"
        )
    own = {"output.dir": [""], "output.resume": [str(folder)]}
    return Given(folder / CONFIG, own | given.values | {"output.resume": [str(folder)]})
