"""What the registries say, written where people read it: ``python -m rarefl.reference``.

It writes ``docs/strategies.md``, the table of strategies in ``fedraw/README.md``, and in ``pyproject.toml``
the options of strategies and query strategies with their defaults. With ``--check`` it writes nothing and
fails if one of them is stale.
"""

import argparse
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from datasets.registry import DATASETS
from fairfal_app.query.registry import QUERY_STRATEGIES
from federation.config.fields import dashed
from federation.config.options import Option, options_of
from fedraw.registry import STRATEGIES
from learning.models import MODELS

PAGE = Path("docs/strategies.md")
SETTINGS = Path("pyproject.toml")
LIBRARY = Path("fedraw/README.md")
ROOT = Path(__file__).resolve().parents[1]

_MARK = "# The options of all of them; written by `python -m rarefl.reference`"
_WIDTH, _COMMENT_AT = 120, 36
# Limits from here on are what a file can carry, and nobody's business.
_LARGE = 2**53
# An option of so many entries or fewer is told with their names.
_FEW = 3


def first_line(documented: Any) -> str:
    """Return the first line of a docstring, without its full stop."""
    return (inspect.getdoc(documented) or "").split("\n")[0].removesuffix(".")


def is_asynchronous(strategy: Any) -> bool:
    """Whether a strategy works without rounds; nothing else in a registry says so of itself."""
    return getattr(strategy, "asynchronous", False)


def allowed(option: Option) -> str:
    """Return the values that an option can have, in words."""
    if option.choices:
        return ", ".join(f"`{choice}`" for choice in option.choices)
    if option.kind is bool:
        return "`true`, `false`"
    words = {"at_least": "at least", "above": "more than", "at_most": "at most", "below": "less than"}
    limits = [f"{words[bound]} {limit:g}" for bound, limit in option.bounds.items() if limit < _LARGE]
    kind = "a whole number" if option.kind is int else "a number" if option.kind is float else "a text"
    return " ".join([kind, ", ".join(limits)]).strip()


def page() -> str:
    """Return ``docs/strategies.md``."""
    return "\n".join(
        [
            "# Strategies, queries, data sets and models",
            "",
            "Written by `python -m rarefl.reference` from the registries and the options beside each "
            "strategy; a test fails when it is stale.",
            "",
            "## Strategies: how updates become a global model",
            "",
            *_table(
                ("`strategy.name`", "what it does", "works", "paper"),
                [
                    (
                        f"`{name}`",
                        first_line(strategy),
                        "without rounds" if is_asynchronous(strategy) else "in rounds",
                        strategy.paper,
                    )
                    for name, strategy in STRATEGIES.items()
                ],
            ),
            "",
            *_options("strategy", STRATEGIES),
            "",
            "## Query strategies: which images are labelled next",
            "",
            *_table(
                ("`query.name`", "what it takes", "paper"),
                [(f"`{name}`", first_line(query), query.paper) for name, query in QUERY_STRATEGIES.items()],
            ),
            "",
            *_options("query", QUERY_STRATEGIES),
            "",
            "## Data sets",
            "",
            *_table(
                ("`data.name`", "what it is"),
                [(f"`{name}`", source.help) for name, source in DATASETS.items()],
            ),
            "",
            "## Models",
            "",
            *_table(
                ("`model.name`", "what it is"),
                [(f"`{name}`", first_line(model)) for name, model in MODELS.items()],
            ),
            "",
        ]
    )


def _options(table: str, registry: Mapping[str, Any]) -> list[str]:
    groups = {
        tuple(registry): "all",
        tuple(name for name, kind in registry.items() if is_asynchronous(kind)): "all without rounds",
    }
    rows = [
        (
            f"`{table}.{dashed(option.name)}`",
            groups.get(option.of, ", ".join(f"`{name}`" for name in option.of)),
            f"`{_value(option.default)}`",
            allowed(option),
            option.help,
        )
        for option in options_of(registry).values()
    ]
    return _table(("option", "of", "default", "allowed", "meaning"), rows)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [heads, ["---"] * len(heads), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]


def settings(text: str) -> str:
    """Return the text of ``pyproject.toml`` with the present names and options in its tables.

    What is written anew is the comment beside each ``name`` that a registry knows, and what follows the mark.
    """
    rounds = [name for name, strategy in STRATEGIES.items() if not is_asynchronous(strategy)]
    others = [name for name, strategy in STRATEGIES.items() if is_asynchronous(strategy)]
    strategies = f"{' | '.join(rounds)}: in rounds; or asynchronous:\n{' | '.join(others)}"
    for table, names in (
        ("data", " | ".join(DATASETS)),
        ("model", " | ".join(MODELS)),
        ("strategy", strategies),
        ("query", " | ".join(QUERY_STRATEGIES)),
    ):
        before, section, after = _section(text, table)
        name = re.match(r'name = "([^"]*)".*\n(?: +#.*(?:\n|$))*', section)
        assert name is not None, f"the first key of the table {table} is its name"
        text = f"{before}{_key('name', name[1], names)}\n{section[name.end() :]}{after}"
    for table, registry in (("strategy", STRATEGIES), ("query", QUERY_STRATEGIES)):
        before, section, after = _section(text, table)
        own, mark, _ = section.partition(_MARK)
        if not mark:
            raise ValueError(
                f"{SETTINGS}: the table {table} has no line {_MARK!r}, after which options stand"
            )
        text = f"{before}{own}" + "\n".join([mark, *_lines(registry)]) + f"\n{after}"
    return text


def library(text: str) -> str:
    """Return the text of the library's README with the present strategies in its table."""
    before, head, rest = text.partition("| class | what it does | from |\n|---|---|---|\n")
    _, blank, after = rest.partition("\n\n")
    rows = [
        f"| `{strategy.__name__}` | {first_line(strategy)}. | {strategy.paper} |"
        for strategy in STRATEGIES.values()
        if is_asynchronous(strategy)
    ]
    return f"{before}{head}" + "\n".join(rows) + f"{blank}{after}"


def _section(text: str, table: str) -> tuple[str, str, str]:
    """Return what stands before the keys of a table, the keys, and the rest from the blank line on."""
    before, head, rest = text.partition(f"[tool.flwr.app.config.{table}]\n")
    section, blank, after = rest.partition("\n\n")
    return before + head, section + "\n", blank[1:] + after


def _lines(registry: Mapping[str, Any]) -> Iterator[str]:
    for option in options_of(registry).values():
        few = len(option.of) <= _FEW and len(option.of) < len(registry)
        told = f"{', '.join(option.of)}: {option.help}" if few else option.help
        missing = [choice for choice in option.choices if not re.search(rf"\b{choice}\b", told)]
        if missing:
            told = f"{told}; {' | '.join(option.choices)}"
        yield _key(dashed(option.name), option.default, told)


def _key(key: str, value: Any, comment: str) -> str:
    """Return one key of a TOML file with its comment, whose further lines stand below its first."""
    width = _WIDTH - _COMMENT_AT - 2
    wrapped = [
        line for part in comment.split("\n") for line in textwrap.wrap(part, width, break_on_hyphens=False)
    ]
    first = f"{key} = {_value(value)}".ljust(_COMMENT_AT - 1) + f" # {wrapped[0]}"
    return "\n".join([first, *(" " * _COMMENT_AT + f"# {line}" for line in wrapped[1:])])


def _value(value: Any) -> str:
    """Return a value as TOML has it."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, bool | str) else repr(value)


def stale(root: Path = ROOT) -> dict[Path, str]:
    """Return the files that say something else than the registries, each with what it should hold."""
    wanted = {root / PAGE: page()}
    for file, renew in ((SETTINGS, settings), (LIBRARY, library)):
        wanted[root / file] = renew((root / file).read_text("utf-8"))
    return {
        path: text for path, text in wanted.items() if not path.is_file() or path.read_text("utf-8") != text
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the stale files, or name them and return 1."""
    parser = argparse.ArgumentParser(prog="python -m rarefl.reference", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if a file is stale")
    check = parser.parse_args(arguments).check
    found = stale()
    for path, text in found.items():
        if check:
            print(f"{path} is stale: run `python -m rarefl.reference`", file=sys.stderr)
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, "utf-8")
            print(f"wrote {path}")
    return 1 if check and found else 0


if __name__ == "__main__":
    sys.exit(main())
