"""The README's commands name presets, keys and numbers of clients that exist."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from federation.config.run_config import default_run_config, flatten, parse_run_config

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
COMMANDS = [
    line
    for block in re.findall(r"```bash\n(.*?)```", README, flags=re.DOTALL)
    for line in block.splitlines()
    if "flwr run" in line or line.startswith("rarefl ")
]


def test_there_are_commands() -> None:
    assert len(COMMANDS) >= 5


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_fits_the_project(command: str) -> None:
    words = shlex.split(command.split("&& ")[-1])
    settings = default_run_config()
    for word in words:
        if word.endswith(".toml"):
            settings |= flatten(tomllib.loads((ROOT / word).read_text()))
    if "--run-config" in words and not (given := words[words.index("--run-config") + 1]).endswith(".toml"):
        settings |= flatten(tomllib.loads("\n".join(given.split())))
    for place, word in enumerate(words):
        if word == "--set":
            key, _, values = words[place + 1].partition("=")
            for value in values.split(","):
                parse_run_config(settings | {key: value})
    config = parse_run_config(settings)
    if "flwr" in words:
        resources = dict(pair.split("=") for pair in words[words.index("--federation-config") + 1].split())
        assert int(resources["num-supernodes"]) == config.data.clients


def test_every_preset_is_in_the_table() -> None:
    for preset in (ROOT / "conf").glob("*.toml"):
        assert f"`{preset.stem}`" in README
