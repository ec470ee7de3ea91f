"""Whether memory stays flat over a long run: ``python -m benchmarks.memory``.

Three runs go through Flower's Ray simulation on a SuperLink of their own: a plain Flower App (FedAvg on
Flower's own Grid, one step of SGD at each client), FairFAL in five label rounds with evaluation and
checkpoints, and as many versions of FedRAW. All have the same model and the same number of clients. The
resident set of the process of the ServerApp and of each Ray worker is read whenever a round is told, and
printed with its growth and, for our runs, with the ratio of it to that of the plain app.
"""

import argparse
import contextlib
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import tomli_w

from rarefl.settings import PROJECT_ROOT
from rarefl.superlink import LocalSuperLink

LABEL_ROUNDS = 5
BEGIN = 10  # round after which memory must not grow
SHOWN = (BEGIN, 100, 250, 500)
WARM = 0.2  # share of the rounds after which growth counts
PYPROJECT = """
[project]
name = "plain"
version = "0.1.0"
[tool.flwr.app]
publisher = "rarefl"
[tool.flwr.app.components]
serverapp = "plain_app.server:app"
clientapp = "plain_app.client:app"
[tool.flwr.app.config]
rounds = 10
clients = 4
"""
SERVER = """
import logging
import time
from flwr.app import ArrayRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from plain_app.client import build

app = ServerApp()

class Telling(FedAvg):
    rounds = 0

    def aggregate_train(self, server_round, replies):
        print(f"[round {server_round}/{self.rounds}]", flush=True)
        return super().aggregate_train(server_round, replies)

@app.main()
def main(grid, context):
    logging.getLogger("flwr").setLevel(logging.ERROR)
    while len(list(grid.get_node_ids())) < context.run_config["clients"]:
        time.sleep(0.1)
    strategy = Telling(fraction_evaluate=0.0)
    strategy.rounds = context.run_config["rounds"]
    arrays = ArrayRecord(build().state_dict())
    strategy.start(grid=grid, initial_arrays=arrays, num_rounds=context.run_config["rounds"])
"""
CLIENT = """
import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from datasets.randomness import torch_generator
from learning.models import build_model

app = ClientApp()

def build():
    return build_model("cnn4", 1, 8, 10, torch_generator(1, "initial weights"))

@app.train()
def train(message, context):
    model = build()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss = torch.nn.functional.cross_entropy(model(torch.randn(36, 1, 8, 8)), torch.randint(10, (36,)))
    loss.backward()
    optimiser.step()
    content = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": 36})}
    return Message(RecordDict(content), reply_to=message)
"""


class Memory:
    """The resident sets of the processes of one run, in MB, by the number of the round that was told last."""

    def __init__(self) -> None:
        self.megabytes: dict[str, dict[int, float]] = {}
        self._processes: dict[str, psutil.Process] = {}

    def take(self, line: str) -> None:
        """Read the resident sets if a line of the run's log tells of a round."""
        number = told_round(line)
        if number is None:
            return
        if not self._processes:
            self._processes = _processes()
        for name, process in self._processes.items():
            with contextlib.suppress(psutil.Error):
                self.megabytes.setdefault(name, {})[number] = process.memory_info().rss / 1e6


def told_round(line: str) -> int | None:
    """Return the round or version, counted from 1 over all label rounds, that a line tells of."""
    match = re.search(r"\[(?:label round (\d+)/\d+, [^\]]*?)?\b(?:round|version) (\d+)/(\d+)\]", line)
    return (int(match[1] or 1) - 1) * int(match[3]) + int(match[2]) if match else None


def _processes() -> dict[str, psutil.Process]:
    """Return the processes of the one run that goes on below this process, by what they are."""
    found, workers = {}, []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            command = " ".join(process.cmdline())
            if "flwr-simulation" in command:
                found["ServerApp"] = process
            elif command.startswith("ray::ClientAppActor"):
                workers.append(process)
    workers.sort(key=lambda process: process.pid)
    return found | {f"worker {number}": process for number, process in enumerate(workers, start=1)}


def write_plain_app(folder: Path) -> Path:
    """Write the plain Flower App and return its folder."""
    root = folder / "plain"
    (root / "plain_app").mkdir(parents=True)
    (root / "pyproject.toml").write_text(PYPROJECT)
    for name, source in (("__init__", ""), ("server", SERVER), ("client", CLIENT)):
        (root / "plain_app" / f"{name}.py").write_text(source)
    return root


def plan(folder: Path, rounds: int, clients: int) -> dict[str, tuple[Path, dict[str, Any]]]:
    """Return, by name, the folder and the settings of each app."""
    fairfal = {
        "app": "fairfal",
        "data": {"clients": clients},
        "train": {"rounds": rounds // LABEL_ROUNDS, "local-epochs": 1, "local-only-epochs": 2},
        "query": {"label-ratio": 0.1, "last-label-ratio": 0.1 * LABEL_ROUNDS},
        "evaluate": {"every": 1},
        "output": {"dir": str(folder / "fairfal")},
    }
    fedraw = {
        "app": "fedraw",
        "data": {"clients": clients},
        "train": {"versions": rounds, "local-epochs": 1},
        "strategy": {"name": "fedraw", "buffer-size": clients},
        "evaluate": {"every": 1},
        "output": {"dir": str(folder / "fedraw")},
    }
    return {
        "plain FedAvg": (write_plain_app(folder), {"rounds": rounds, "clients": clients}),
        "FairFAL": (PROJECT_ROOT, fairfal),
        "FedRAW": (PROJECT_ROOT, fedraw),
    }


def growth(megabytes: dict[int, float], rounds: int) -> float:
    """Return the slope of the resident set in MB a 100 rounds, by least squares over the warm rounds."""
    warm = [number for number in megabytes if number >= WARM * rounds]
    return float(100 * np.polyfit(warm, [megabytes[number] for number in warm], 1)[0])


def at(megabytes: dict[int, float], number: int) -> float:
    """Return the resident set that was read nearest to a round: the log comes in batches."""
    return megabytes[min(megabytes, key=lambda each: abs(each - number))]


def measure(
    superlink: LocalSuperLink, root: Path, settings: dict[str, Any], resources: str, file: Path
) -> dict[str, dict[int, float]]:
    """Run an app to its end and return, by process, the resident set in MB by round."""
    file.write_text(tomli_w.dumps(settings))
    memory = Memory()
    lines: list[str] = []

    def on_line(line: str) -> None:
        lines.append(line)
        memory.take(line)

    outcome = superlink.submit(root, file, resources, on_line)
    if not outcome.completed:
        raise SystemExit("\n".join([*lines, outcome.details]))
    if not memory.megabytes:
        raise SystemExit("\n".join([*lines, "no line of this log tells of a round"]))
    return memory.megabytes


def main() -> None:
    """Run the three apps and print their memory."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--clients", type=int, default=4)
    options = parser.parse_args()
    if options.rounds < 10 * BEGIN or options.rounds % LABEL_ROUNDS:
        parser.error(f"--rounds {options.rounds}: give a multiple of {LABEL_ROUNDS}, {10 * BEGIN} or more")
    folder = Path(tempfile.mkdtemp(prefix="rarefl-memory-"))
    os.environ["XDG_STATE_HOME"] = str(folder / "state")  # clients keep their labels there
    resources = f"num-supernodes={options.clients} client-resources-num-cpus=1 init-args-num-cpus=2"
    shown = [number for number in SHOWN if number < options.rounds] + [options.rounds]
    heads = "".join(f"{number:>6}" for number in shown)
    print(f"{'MB at round':24}{heads}  per 100  end / begin  / plain")
    plain: dict[str, float] = {}
    with LocalSuperLink() as superlink:
        for app, (root, settings) in plan(folder, options.rounds, options.clients).items():
            memory = measure(superlink, root, settings, resources, folder / "run.toml")
            for process, megabytes in memory.items():
                cells = "".join(f"{at(megabytes, number):6.0f}" for number in shown)
                increase = at(megabytes, options.rounds) / at(megabytes, BEGIN)
                ratio = increase / plain.setdefault(process, increase)
                slope = growth(megabytes, options.rounds)
                print(f"{app + ', ' + process:24}{cells}{slope:9.1f}{increase:13.2f}{ratio:9.2f}", flush=True)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
