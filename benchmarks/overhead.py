"""What a communication round costs beside training, in Flower's Ray simulation with 10 clients.

    python -m benchmarks.overhead

A small Flower App is run by ``flwr run``. Its clients send the arrays of ``cnn4`` back untouched, so that a
round is nothing but Flower's FedAvg, messages and Ray. The same rounds go through Flower's own Grid and
through ``ClientGrid``.
"""

import argparse
import shutil
import tempfile
from pathlib import Path

from rarefl.superlink import LocalSuperLink

PYPROJECT = """
[project]
name = "overhead"
version = "0.1.0"
[tool.flwr.app]
publisher = "rarefl"
[tool.flwr.app.components]
serverapp = "overhead_app.server:app"
clientapp = "overhead_app.client:app"
[tool.flwr.app.config]
rounds = 10
clients = 10
"""
SERVER = """
import logging
import time
from flwr.app import Array, ArrayRecord
from flwr.serverapp import ServerApp
from datasets.randomness import torch_generator
from federation.messages.grid import ClientGrid
from fedraw.rounds.synchronous import SteadyFedAvg
from learning.arrays import to_arrays
from learning.models import build_model

app = ServerApp()

@app.main()
def main(grid, context):
    logging.getLogger("flwr").setLevel(logging.ERROR)
    rounds, clients = context.run_config["rounds"], context.run_config["clients"]
    while len(list(grid.get_node_ids())) < clients:
        time.sleep(0.1)
    model = build_model("cnn4", 1, 28, 10, torch_generator(1, "initial weights"))
    arrays = ArrayRecord({key: Array(value) for key, value in to_arrays(model).items()})
    for name, used in (("warm-up", grid), ("Flower's Grid", grid), ("ClientGrid", ClientGrid(grid))):
        strategy = SteadyFedAvg.configured(SteadyFedAvg.Options(), {}, clients=clients)
        start = time.perf_counter()
        strategy.start(grid=used, initial_arrays=arrays, num_rounds=rounds)
        print(f"overhead|{name}|{(time.perf_counter() - start) / rounds:.3f}", flush=True)
"""
CLIENT = """
from flwr.app import Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()

@app.train()
def train(message, context):
    metrics = MetricRecord({"num-examples": 1})
    return Message(RecordDict({"arrays": message.content["arrays"], "metrics": metrics}), reply_to=message)
"""


def main() -> None:
    """Run the app and print seconds a round."""
    parser = argparse.ArgumentParser(description="Seconds of a round beside training.")
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=10)
    arguments = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="rarefl-overhead-"))
    (root / "overhead_app").mkdir()
    (root / "pyproject.toml").write_text(PYPROJECT)
    for name, source in (("__init__", ""), ("server", SERVER), ("client", CLIENT)):
        (root / "overhead_app" / f"{name}.py").write_text(source)
    config = root / "run.toml"
    config.write_text(f"rounds = {arguments.rounds}\nclients = {arguments.clients}\n")
    resources = f"num-supernodes={arguments.clients} client-resources-num-cpus=1"
    lines: list[str] = []
    with LocalSuperLink() as superlink:
        outcome = superlink.submit(root, config, resources, lines.append)
    shutil.rmtree(root)
    if not outcome.completed:
        raise SystemExit("\n".join([*lines, outcome.details]))
    seconds = {
        name: float(value)
        for _, name, value in (line.split("|") for line in lines if line.startswith("overhead|"))
        if name != "warm-up"
    }
    print(f"{arguments.clients} clients, {arguments.rounds} rounds, cnn4: seconds a round")
    for name, value in seconds.items():
        print(f"{name:16} {value:.3f}")
    flower, ours = seconds.values()
    print(f"{'ratio':16} {flower / ours:.1f}")


if __name__ == "__main__":
    main()
