"""Seconds that ``rarefl report`` takes for many long runs: ``python -m benchmarks.report``.

Run folders are made up: half of them label rounds (9 of 100 rounds, 10 sites), half trainings of 900 versions
of 4 updates with every event, 2 methods and 50 seeds each. The report is timed in this process, and beside it
``pandas.read_csv`` of every table in the folders.
"""

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import tomli_w

from fairfal_app.config import FairFALConfig
from federation.config.run_config import default_run_config, parse_run_config
from rarefl.report.report import build
from rarefl.report.writing import write

CLASSES, SITES, LABEL_ROUNDS, UPDATES = 10, 10, 9, 4
MEASURES = ("accuracy", "balanced_accuracy", "rare_accuracy", "common_accuracy", "macro_f1")


def measures(rng: np.random.Generator, rows: int) -> dict[str, np.ndarray]:
    """Return made-up measures of so many rounds that grow from round to round."""
    growth = 0.9 * (1 - np.exp(-np.linspace(0.2, 4, rows)))
    named = {name: np.clip(growth + rng.normal(0, 0.02, rows), 0, 1) for name in MEASURES}
    per_class = {f"accuracy_class_{label}": rng.random(rows) for label in range(CLASSES)}
    return {**named, "loss": 2 - growth, **per_class}


def label_rounds(folder: Path, rng: np.random.Generator, rounds: int) -> dict[str, Any]:
    """Write the tables of a run of label rounds and return its results for the summary."""
    per_round = max(1, rounds // LABEL_ROUNDS)
    number = np.repeat(np.arange(1, LABEL_ROUNDS + 1), per_round)
    frame = pd.DataFrame(
        {
            "label_round": number,
            "round": np.tile(np.arange(1, per_round + 1), LABEL_ROUNDS),
            "labelled": 100 * number,
            "label_ratio": 0.05 * number,
            **measures(rng, len(number)),
        }
    )
    frame.to_csv(folder / "rounds.csv", index=False)
    pool = np.geomspace(2000, 200, CLASSES)
    bought = rng.poisson(100 * pool / pool.sum(), (LABEL_ROUNDS * SITES, CLASSES))
    queries = pd.DataFrame(
        {
            "label_round": np.repeat(np.arange(1, LABEL_ROUNDS + 1), SITES),
            "site": np.tile([f"site-{site:02d}" for site in range(SITES)], LABEL_ROUNDS),
            "query_model": rng.choice(["global", "local"], LABEL_ROUNDS * SITES),
        }
    )
    counts = pd.DataFrame(bought, columns=[f"class_{label}" for label in range(CLASSES)])
    pd.concat([queries, counts], axis=1).to_csv(folder / "queries.csv", index=False)
    last = frame.groupby("label_round").tail(1).assign(rare_label_share=0.1, accuracy_last5=0.5)
    return {"train_class_counts": pool.round().tolist(), "label_rounds": last.to_dict("records")}


def training(folder: Path, rng: np.random.Generator, versions: int) -> dict[str, Any]:
    """Write the tables of an asynchronous training and return its results for the summary."""
    version = np.arange(1, versions + 1)
    frame = pd.DataFrame({"version": version, "time": 1.5 * version, **measures(rng, versions)})
    frame.to_csv(folder / "rounds.csv", index=False)
    kinds = ["dispatch", "arrive"] * UPDATES + ["aggregate"] * UPDATES + ["publish"]
    events = pd.DataFrame(
        {
            "time": np.repeat(1.5 * version, len(kinds)),
            "kind": np.tile(kinds, versions),
            "site": rng.choice([f"site-{site:02d}" for site in range(SITES)], versions * len(kinds)),
            "job": np.arange(versions * len(kinds)),
            "version": np.repeat(version, len(kinds)),
            "staleness": rng.poisson(2, versions * len(kinds)),
            "weight": rng.random(versions * len(kinds)),
            "reason": "",
        }
    )
    events.to_csv(folder / "events.csv", index=False)
    shares = rng.dirichlet(np.ones(SITES), 2)
    influence = pd.DataFrame(
        {
            "site": [f"site-{site:02d}" for site in range(SITES)],
            "rare": (np.arange(SITES) < 2).astype(int),
            "share_of_updates": shares[0],
            "share_of_weight": shares[1],
        }
    )
    influence.to_csv(folder / "influence.csv", index=False)
    result = {
        "version": versions,
        "time": 1.5 * versions,
        **{name: frame[name].iloc[-1] for name in MEASURES},
    }
    result |= {f"{name}_last5": frame[name].tail(5).mean() for name in MEASURES if name.endswith("accuracy")}
    return {"result": result, "time_to_accuracy": {"0.50": 300.0, "0.60": 600.0}}


def make_runs(top: Path, number: int, rounds: int) -> None:
    """Make so many folders of finished runs."""
    kinds = (
        ("fairfal", label_rounds, "query.name", ("random", "fairfal")),
        ("fedraw", training, "strategy.name", ("fedbuff", "fedraw")),
    )
    for place in range(number):
        app, tables, key, methods = kinds[place % 2]
        seed, method = place // 4, methods[place // 2 % 2]
        folder = top / f"{app}-{method}-{seed}"
        folder.mkdir(parents=True)
        config = parse_run_config(
            default_run_config() | {"app": app, "seed": seed, key: method}, FairFALConfig
        )
        (folder / "config.toml").write_text(tomli_w.dumps(config.resolved()))
        rng = np.random.default_rng([place])
        summary: dict[str, Any] = {"app": app, "status": "finished", "seconds": 100.0, "rare_labels": [8, 9]}
        summary |= {"class_names": [str(label) for label in range(CLASSES)]} | tables(folder, rng, rounds)
        (folder / "summary.json").write_text(json.dumps(summary, default=float))
        confusion = pd.DataFrame(
            rng.poisson(3, (CLASSES, CLASSES)) + 50 * np.eye(CLASSES, dtype=int),
            columns=[f"class_{label}" for label in range(CLASSES)],
        )
        confusion.to_csv(folder / "confusion.csv", index_label="label")


def main() -> None:
    """Print seconds and the ratio to plain reading."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=900)
    parser.add_argument("--keep", type=Path, help="a new folder that runs and report stay in")
    options = parser.parse_args()
    top = options.keep or Path(tempfile.mkdtemp(prefix="rarefl-report-"))
    make_runs(top / "runs", options.runs, options.rounds)
    tables = sorted((top / "runs").rglob("*.csv"))
    megabytes = sum(path.stat().st_size for path in tables) / 1e6
    clocks = (("wall", time.perf_counter), ("processor", time.process_time))

    before = [clock() for _, clock in clocks]
    for path in tables:
        pd.read_csv(path)
    plain = [clock() - start for (_, clock), start in zip(clocks, before, strict=True)]
    before = [clock() for _, clock in clocks]
    write(build([top / "runs"]), top / "report")
    ours = [clock() - start for (_, clock), start in zip(clocks, before, strict=True)]

    print(f"{options.runs} runs of {options.rounds} rounds, {len(tables)} tables of {megabytes:.0f} MB")
    for (name, _), of_pandas, of_report in zip(clocks, plain, ours, strict=True):
        ratio = of_report / of_pandas
        print(f"{name} time: pandas {of_pandas:.1f} s, report {of_report:.1f} s, ratio {ratio:.2f}")
    if options.keep is None:
        shutil.rmtree(top)


if __name__ == "__main__":
    main()
