"""Which runs are compared: sections of one protocol, and in each the methods that differ.

A protocol is every key of the run config but the seed, the places of files, when a model is measured, and the
keys of the compared methods, ``query.*`` (without the label ratios) and ``strategy.*``. Runs of two protocols
are never averaged.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from federation.config.run_config import default_run_config
from rarefl.columns import round_columns, training_columns
from rarefl.report.runs import App, Findings, Run

_NOT_COMPARED = ("output.", "nodes.", "evaluate.", "data.root")
_OF_METHODS = ("query.", "strategy.")
_OF_PROTOCOL = ("query.label-ratio", "query.last-label-ratio")
_UNUSED: dict[App, tuple[str, ...]] = {"fairfal": (), "fedraw": ("query.", "oracle.")}
_NAMES = ("query.name", "strategy.name")
_SAME_AS_SEED = "the run's seed"


@dataclass(frozen=True, eq=False)
class Section:
    """Runs of one protocol.

    Attributes
    ----------
    title, slug
        For headings and for file names; no two sections share one.
    protocol
        Keys and values that all runs share.
    methods
        Names, in the order of the runs; no two are equal.
    runs
        Each run with its method; a method has one run a seed.
    rows
        Columns ``method``, ``seed`` and those of ``results.csv``.
    """

    title: str
    slug: str
    app: App
    protocol: dict[str, Any]
    methods: tuple[str, ...]
    runs: tuple[tuple[str, Run], ...]
    rows: pd.DataFrame

    @property
    def results(self) -> pd.DataFrame:
        """The runs as a results file holds them, with the keys that tell the methods apart."""
        methods = {method: _method(run) for method, run in self.runs}
        keys = _telling_keys(list(methods.values()))
        told = pd.DataFrame(
            [
                {"method": method, "run": f"{method}, seed {run.seed}"}
                | {key: _text(run.config.get(key, "")) for key in keys}
                | {"seed": run.seed}
                for method, run in self.runs
            ]
        )
        return told.merge(self.rows, on=["method", "seed"], sort=False).drop(columns="method")

    @property
    def seeds(self) -> dict[str, int]:
        """Number of seeds of each method."""
        counts = self.rows.groupby("method")["seed"].nunique()
        return {method: int(counts[method]) for method in self.methods}


def sections(findings: Findings) -> list[Section]:
    """Return the sections of all runs, in the order of the runs; two runs of one seed give a warning."""
    groups: dict[str, list[Run]] = {}
    for run in _with_later_keys(findings.runs):
        groups.setdefault(_key([run.app, run.source, _protocol(run)]), []).append(run)
    parts = [part for runs in groups.values() for part in _by_data_seed(runs)]
    titles = _titles(parts)
    return [
        _section(title, slug, protocol, runs, findings)
        for (title, slug), (protocol, runs) in zip(titles, parts, strict=True)
    ]


def gather(section: Section, table: Callable[[Run], pd.DataFrame | None]) -> pd.DataFrame | None:
    """Return a table of all runs under each other with ``method`` and ``seed``; None where no run has it."""
    frames = [
        frame.assign(method=method, seed=run.seed)
        for method, run in section.runs
        if (frame := table(run)) is not None and not frame.empty
    ]
    return pd.concat(frames, ignore_index=True) if frames else None


def _with_later_keys(runs: Sequence[Run]) -> list[Run]:
    """Return the runs with the defaults of keys that came after some of them: these had no other choice."""
    keys = {key for run in runs if run.folder is not None for key in run.config}
    defaults = {key: value for key, value in default_run_config().items() if key in keys}
    return [run if run.folder is None else replace(run, config=defaults | run.config) for run in runs]


def method_names(methods: Sequence[Mapping[str, Any]], app: App) -> list[str]:
    """Return a short name for each method, by the keys in which they differ.

    Parameters
    ----------
    methods
        Their keys and values, no two of them equal.
    """
    main = _NAMES[0] if app == "fairfal" else _NAMES[1]
    names = [key for key in _NAMES if _differ(methods, key)] or [key for key in (main,) if key in methods[0]]
    heads = [" + ".join(_text(method.get(key, "-")) for key in names) for method in methods]
    told = []
    for head, method in zip(heads, methods, strict=True):
        namesakes = [other for other, name in zip(methods, heads, strict=True) if name == head]
        keys = [key for key in _telling_keys(namesakes) if key in method]
        tail = [f"{key.partition('.')[2] or key} = {_text(method[key])}" for key in keys]
        told.append(", ".join([head, *tail] if head else tail) or "all runs")
    return told


def _differ(methods: Sequence[Mapping[str, Any]], key: str) -> bool:
    return len({_key(method.get(key)) for method in methods}) > 1


def _telling_keys(methods: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return keys that tell all methods apart, each of which tells more than those before it."""
    keys: list[str] = []
    for key in dict.fromkeys(key for method in methods for key in method):
        if len(_kinds(methods, [*keys, key])) > len(_kinds(methods, keys)):
            keys.append(key)
    return keys


def _kinds(methods: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> set[str]:
    return {_key([method.get(key) for key in keys]) for method in methods}


def _is_of_method(key: str) -> bool:
    return key.startswith(_OF_METHODS) and key not in _OF_PROTOCOL


def _used(run: Run) -> dict[str, Any]:
    ignored = _NOT_COMPARED + _UNUSED[run.app]
    return {key: value for key, value in run.config.items() if key != "seed" and not key.startswith(ignored)}


def _protocol(run: Run) -> dict[str, Any]:
    return {key: value for key, value in _used(run).items() if not _is_of_method(key) and key != "data.seed"}


def _method(run: Run) -> dict[str, Any]:
    return {key: value for key, value in _used(run).items() if _is_of_method(key)}


def _by_data_seed(runs: Sequence[Run]) -> list[tuple[dict[str, Any], list[Run]]]:
    """Part runs whose data have a seed of their own from those whose data follow the run's seed.

    A run folder tells the data's seed as a number in both cases. One that goes with another seed of the run
    was set.
    """
    own = {run.config["data.seed"] for run in runs if run.config.get("data.seed", run.seed) != run.seed}
    parts: dict[Any, list[Run]] = {}
    for run in runs:
        seed = run.config.get("data.seed")
        parts.setdefault(seed if seed in own or seed is None else _SAME_AS_SEED, []).append(run)
    return [
        (_protocol(group[0]) | ({} if seed is None else {"data.seed": seed}), group)
        for seed, group in parts.items()
    ]


def _titles(parts: Sequence[tuple[dict[str, Any], list[Run]]]) -> list[tuple[str, str]]:
    """Return a title and a file name for each part: data and kind, and what it has unlike its namesakes."""
    kinds = ["label rounds" if runs[0].app == "fairfal" else "training" for _, runs in parts]
    names = [runs[0].source or str(protocol.get("data.name", "runs")) for protocol, runs in parts]
    plain = [f"{name}, {kind}" for name, kind in zip(names, kinds, strict=True)]
    titles = []
    for title, (protocol, _) in zip(plain, parts, strict=True):
        keys = _telling_keys([other for (other, _), name in zip(parts, plain, strict=True) if name == title])
        told = [f"{key} = {_text(protocol[key])}" for key in keys if key in protocol]
        titles.append(f"{title} ({', '.join(told)})" if told else title)
    slugs: Counter[str] = Counter()
    files = []
    for name, kind in zip(names, kinds, strict=True):
        slug = re.sub(r"[^A-Za-z0-9]+", "-", f"{Path(name).stem} {kind}").strip("-")
        slugs[slug] += 1
        files.append(slug if slugs[slug] == 1 else f"{slug}-{slugs[slug]}")
    return list(zip(titles, files, strict=True))


def _section(
    title: str, slug: str, protocol: dict[str, Any], runs: Sequence[Run], findings: Findings
) -> Section:
    chosen: dict[tuple[str, int], Run] = {}
    for run in runs:
        place = (_key(_method(run)), run.seed)
        if place in chosen:
            findings.warnings.append(
                f"{chosen[place].name} and {run.name} are runs of one method and seed; the latter is counted"
            )
        chosen[place] = run
    distinct = list(dict.fromkeys(method for method, _ in chosen))
    told = method_names([json.loads(method) for method in distinct], runs[0].app)
    names = dict(zip(distinct, told, strict=True))
    named = tuple((names[method], run) for (method, _), run in chosen.items())
    rows = pd.concat(
        [run.rows.assign(method=method, seed=run.seed) for method, run in named], ignore_index=True
    )
    columns = round_columns() if runs[0].app == "fairfal" else training_columns()
    lacking = [column for column in (*columns, "seconds") if column not in rows]
    rows = rows.assign(**dict.fromkeys(lacking, float("nan")))
    return Section(title, slug, runs[0].app, protocol, tuple(told), named, rows)


def _key(value: Any) -> str:
    """Return a text that is the same for equal values; TOML knows dates, too."""
    return json.dumps(value, sort_keys=True, default=str)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value).removesuffix(".0") if isinstance(value, float) else str(value)
