"""What ``rarefl list`` tells: what there is to choose from, one line each, and the runs that were made."""

import re
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from rich.table import Table

from datasets.names import unknown
from datasets.registry import DATASETS
from fairfal_app.query.registry import QUERY_STRATEGIES
from federation.config.run_config import default_run_config, flatten
from federation.errors import ConfigError
from federation.runs.folders import DEFAULT_PARENT, is_held
from federation.runs.run_folder import CONFIG, ROUNDS, SUMMARY
from fedraw.registry import STRATEGIES
from learning.models import MODELS
from rarefl.checks import read_summary
from rarefl.launch import can_go_on
from rarefl.reference import first_line, is_asynchronous
from rarefl.settings import PRESETS, read_preset

_AGES = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def list_topics() -> Table:
    """Return the topics, each with how many entries it has."""
    counts = {name: len(topic()) for name, (topic, _) in TOPICS.items()}
    counts["runs"] = len(run_folders(default_runs()))
    helps = {name: told for name, (_, told) in TOPICS.items()}
    helps["runs"] = f"runs that were made, newest first, in {DEFAULT_PARENT} or a folder given after it"
    return _table(("topic", "entries", "what"), [(name, str(counts[name]), helps[name]) for name in counts])


def list_topic(name: str, folder: Path | None = None) -> Table:
    """Return one topic, a line an entry.

    Parameters
    ----------
    folder
        For ``runs``: where to look for them.

    Raises
    ------
    ConfigError
        There is no such topic, or a folder is given for another one or is not there.
    """
    if name == "runs":
        return runs_table(folder or default_runs(), must_be=folder is not None)
    if name not in TOPICS:
        raise ConfigError(unknown("topic", name, [*TOPICS, "runs"]))
    if folder is not None:
        raise ConfigError(f"`rarefl list {name}` takes no folder; only `rarefl list runs` does")
    rows = TOPICS[name][0]()
    return _table([*rows[0]], [list(row.values()) for row in rows])


def _strategies() -> list[dict[str, str]]:
    return [
        {
            "strategy.name": name,
            "works": "without rounds" if is_asynchronous(strategy) else "in rounds",
            "paper": strategy.paper or "-",
            "what": first_line(strategy),
        }
        for name, strategy in STRATEGIES.items()
    ]


def _queries() -> list[dict[str, str]]:
    return [
        {"query.name": name, "paper": query.paper or "-", "what": first_line(query)}
        for name, query in QUERY_STRATEGIES.items()
    ]


def _data() -> list[dict[str, str]]:
    return [{"data.name": name, "what": source.help} for name, source in DATASETS.items()]


def _models() -> list[dict[str, str]]:
    return [{"model.name": name, "what": first_line(model)} for name, model in MODELS.items()]


def _presets() -> list[dict[str, str]]:
    rows = []
    for path in sorted(PRESETS.rglob("*.toml"), key=lambda path: path.with_suffix("")):
        config = default_run_config() | read_preset(path)
        name = path.relative_to(PRESETS).with_suffix("").as_posix()
        told = {key: str(config[key]) for key in ("app", "data.name", "data.clients")}
        rows.append({"preset": name, **told, "what": first_sentence(path)})
    return rows


TOPICS: Mapping[str, tuple[Callable[[], list[dict[str, str]]], str]] = {
    "strategies": (_strategies, "how updates become a global model"),
    "queries": (_queries, "which images are labelled"),
    "data": (_data, "data sets; `rarefl data NAME` shows one"),
    "models": (_models, "networks"),
    "presets": (_presets, "experiments in conf/; `rarefl run NAME` starts one"),
}
"""What there is to choose from: for each topic its entries, and what it is."""


def first_sentence(path: Path) -> str:
    """Return the first sentence of the comment with which a run-config file begins."""
    comment: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        comment.append(line.removeprefix("#").strip())
    return re.split(r"\.(?:\s|$)", " ".join(comment), maxsplit=1)[0]


def default_runs() -> Path:
    """Return the folder of runs that were not told where to write."""
    return Path(DEFAULT_PARENT).expanduser()


def run_folders(parent: Path) -> list[Path]:
    """Return the folders of runs at any depth, that of the newest summary first."""
    summaries = {path: path.stat().st_mtime for path in parent.rglob(SUMMARY)}
    return [path.parent for path in sorted(summaries, key=summaries.__getitem__, reverse=True)]


def runs_table(parent: Path, must_be: bool = False) -> Table:
    """Return the runs in a folder; raises ConfigError where it must be there and is not."""
    parent = parent.expanduser()
    if must_be and not parent.is_dir():
        raise ConfigError(f"there is no folder {parent}; give one with runs in it")
    rows = [_run_row(folder, parent) for folder in run_folders(parent)]
    return _table(("run", "status", "label", "seed", "best accuracy", "age"), rows)


def _run_row(folder: Path, parent: Path) -> Sequence[str]:
    summary = read_summary(folder) or {}
    age = time.time() - (folder / SUMMARY).stat().st_mtime
    return (
        str(folder.relative_to(parent)),
        _status(folder, summary),
        str(summary.get("label", "")),
        _seed(folder),
        _best(folder),
        age_text(age),
    )


def _status(folder: Path, summary: Mapping[str, Any]) -> str:
    """Return how a run stands; one that was killed still says that it is running."""
    status = str(summary.get("status", "unreadable"))
    if status != "running" or is_held(folder):
        return status
    return "stopped" if can_go_on(folder) else "lost"


def _seed(folder: Path) -> str:
    try:
        config = flatten(tomllib.loads((folder / CONFIG).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return ""
    return str(config.get("seed", ""))


def _best(folder: Path) -> str:
    """Return the highest accuracy of a run so far."""
    try:
        accuracy = pd.read_csv(folder / ROUNDS)["accuracy"].max()
    except (OSError, ValueError, KeyError):
        return "-"
    return "-" if pd.isna(accuracy) else f"{accuracy:.3f}"


def age_text(seconds: float) -> str:
    """Return an age in its largest whole unit, such as ``3 h``."""
    size, unit = next((each for each in _AGES if seconds >= each[0]), _AGES[-1])
    return f"{max(0, int(seconds // size))} {unit}"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, no_wrap=column not in ("what", "run"), overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table
