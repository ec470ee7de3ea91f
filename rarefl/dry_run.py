"""What ``rarefl run --dry-run`` tells: settings, what each client would hold, about how long and how much."""

from rich.console import Console
from rich.table import Table

from datasets.budget import budget_per_client, label_rounds
from datasets.federated import FederatedData
from fairfal_app.config import FairFALConfig
from federation.config.unused import unused_keys
from federation.runs.progress import clock_text
from rarefl.estimate import ENGINE_BYTES, measure, memory_of, seconds_of, work_of
from rarefl.machine import Machine
from rarefl.settings import Given
from rarefl.settings_table import settings_table


def show_dry_run(
    config: FairFALConfig,
    given: Given,
    data: FederatedData,
    machine: Machine,
    federation: str,
    console: Console,
) -> None:
    """Print what the run would do; ``federation`` is what ``flwr run --federation-config`` would get."""
    console.print(settings_table(config, given))
    for sentence in unused_keys(config):
        console.print(f"warning: {sentence}", soft_wrap=True)
    console.print(client_table(config, data))
    console.print(f"flwr run would get --federation-config {federation!r}")
    for line in estimate_lines(config, data, machine):
        console.print(line, soft_wrap=True)
    if config.output.resume:
        console.print("this is of the whole run; what it has done before is counted as well")
    console.print("nothing was started")


def client_table(config: FairFALConfig, data: FederatedData) -> Table:
    """Return what each client would hold: images, labels, rare labels, and the labels that it may buy."""
    fairfal = config.queries
    query = config.query
    table = Table("client")
    for heading in ("images", "test images", "labels", "rare labels"):
        table.add_column(heading, justify="right")
    budget = rounds = 0
    if fairfal:
        budget = budget_per_client(query.label_ratio, len(data.train_ids), len(data.pools))
        rounds = label_rounds(query.label_ratio, query.last_label_ratio, [len(pool) for pool in data.pools])
        for heading in ("budget a label round", f"labelled after {rounds}"):
            table.add_column(heading, justify="right")
    for client, (name, pool) in enumerate(zip(data.client_names, data.pools, strict=True)):
        counts = data.class_counts(client)
        held = ", ".join(str(label) for label in data.rare_labels if counts[label])
        cells = [len(pool), len(data.test_pools[client]), int((counts > 0).sum()), held or "-"]
        if fairfal:
            cells += [min(budget, len(pool)), min(budget * rounds, len(pool))]
        table.add_row(name, *map(str, cells))
    return table


def estimate_lines(config: FairFALConfig, data: FederatedData, machine: Machine) -> list[str]:
    """Return about how long the run takes and how much memory, each with what it rests on."""
    workers = machine.workers(config.data.clients)
    work, speed = work_of(config, data), measure(config, data)
    seconds = seconds_of(work, speed, workers, machine.gpus, machine.cpus)
    where = f"{machine.gpus} GPUs" if machine.gpus else f"{workers} workers with a CPU each"
    return [
        f"time: about {clock_text(seconds)}, and half a minute for Flower and Ray to start: "
        f"{work.steps:,.0f} SGD steps of {config.train.batch_size} images at {1000 * speed.step:.1f} ms and "
        f"{work.images + work.evaluated:,.0f} images through the network at {1000 * speed.image:.2f} ms, "
        f"as just measured on {speed.device}, on {where}. A local-only training that ends early makes it "
        "less; sending, and what else this machine does, make it more",
        f"memory: about {memory_of(speed, workers) / 1e9:.1f} GB: {workers} workers and the server with "
        f"{speed.memory / 1e9:.1f} GB each, as this process has now with the same data and network, and "
        f"{ENGINE_BYTES / 1e9:.1f} GB for Flower and Ray",
    ]
