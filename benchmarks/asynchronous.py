"""Cost of the asynchronous server: ``python -m benchmarks.asynchronous``.

Prints the seconds of a flush of ResNet-18 updates against a plain numpy weighted sum of the same arrays, what
FedRAW adds to FedBuff, the cost of a schedule of many clients, and how many versions stay in memory. With
``--preset conf/fedraw-fmnist.toml`` it also runs that preset in this process and tells the share of its wall
time that was not training.
"""

import argparse
import statistics
import tempfile
import threading
import time
import tomllib
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity
from torchvision.models import resnet18

from fairfal_app.config import FairFALConfig
from federation import records
from federation.config.run_config import default_run_config, flatten, parse_run_config
from federation.runs.progress import quiet_flower
from fedraw import AsynchronousStrategy, FedBuff, FedRAW
from fedraw.arrays import is_buffer
from fedraw.clock import VirtualClock
from fedraw.delays import LogNormal
from fedraw.run.buffer import Entry
from fedraw_app.client_app import app as client_app
from fedraw_app.server_app import run

BUFFER = 10


class NodesOnly(Grid):
    """A grid that has nodes and carries nothing."""

    def __init__(self, count: int) -> None:
        self.count = count

    def set_run(self, run: Run) -> None:
        """Ignore the run."""

    @property
    def run(self) -> Run:
        """An empty run."""
        return Run.create_empty(run_id=1)

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Carry nothing."""
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of the nodes."""
        return range(self.count)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Carry nothing."""
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Carry nothing."""
        raise NotImplementedError

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Carry nothing."""
        raise NotImplementedError


class Threads(NodesOnly):
    """A grid whose clients work in threads of this process, and the seconds that they trained."""

    def __init__(self, count: int, run_config: dict[str, Any], workers: int) -> None:
        super().__init__(count)
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        self.app: ClientApp = client_app
        self.contexts = {
            node: Context(1, node, {"partition-id": node}, RecordDict(), run_config) for node in range(count)
        }
        self.pool = ThreadPoolExecutor(workers)
        self.replies: dict[str, Future[Message]] = {}
        self.seconds = 0.0
        self.lock = threading.Lock()

    def _work(self, message: Message, message_id: str) -> Message:
        began = time.perf_counter()
        node = message.metadata.dst_node_id
        reply = self.app(message, self.contexts[node])
        if message.metadata.message_type == records.TRAIN:
            with self.lock:
                self.seconds += time.perf_counter() - began
        reply.metadata.__dict__["_message_id"] = f"reply-{message_id}"
        reply.metadata.__dict__["_src_node_id"] = node
        return reply

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Start the work."""
        ids = []
        for message in messages:
            message_id = f"message-{len(self.replies)}-{time.perf_counter_ns()}"
            message.metadata.__dict__["_message_id"] = message_id
            self.replies[message_id] = self.pool.submit(self._work, message, message_id)
            ids.append(message_id)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return the replies that are there."""
        ready = [key for key in message_ids if key in self.replies and self.replies[key].done()]
        return [self.replies.pop(key).result() for key in ready]


def median_seconds(function: Callable[[], object], turns: int) -> float:
    """Return the median seconds of a function over some turns, after one to warm up."""
    seconds = []
    for _ in range(turns + 1):
        began = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[1:])


def flushes(turns: int) -> None:
    """Print the cost of a flush."""
    rng = np.random.default_rng(0)
    current = {key: value.numpy() for key, value in resnet18().state_dict().items()}
    parameters = [key for key in current if not is_buffer(key, None)]
    sites = [f"site-{i}" for i in range(BUFFER)]
    entries = [
        Entry(
            site=site,
            job=0,
            version=0,
            sequence=i,
            deltas={key: rng.normal(size=current[key].shape).astype(np.float32) for key in parameters},
            values={key: value for key, value in current.items() if key not in parameters},
        )
        for i, site in enumerate(sites)
    ]
    coverage = {site: [1, 1, int(i < 3)] for i, site in enumerate(sites)}
    taus = [i % 4 for i in range(BUFFER)]
    buffered, aware = FedBuff(buffer_size=BUFFER), FedRAW(buffer_size=BUFFER, label_coverage=coverage)
    factors = buffered.coefficients(entries, taus)

    def plain() -> dict[str, np.ndarray]:
        return {
            key: current[key] + sum(f * entry.deltas[key] for f, entry in zip(shares, entries, strict=True))
            for key in parameters
        }

    def flush(strategy: AsynchronousStrategy) -> None:
        strategy.update(current, entries, strategy.coefficients(entries, taus))

    shares = factors.astype(np.float32)
    numpy_seconds = median_seconds(plain, turns)
    flush_seconds = median_seconds(lambda: flush(buffered), turns)
    weights = [
        median_seconds(lambda strategy=strategy: strategy.coefficients(entries, taus), 200)  # type: ignore[misc]
        for strategy in (buffered, aware)
    ]
    size = sum(current[key].size for key in parameters)
    print(f"flush of {BUFFER} updates of {size / 1e6:.1f} M parameters: {flush_seconds:.3f} s")
    print(f"  plain numpy weighted sum: {numpy_seconds:.3f} s; ratio {flush_seconds / numpy_seconds:.2f}")
    extra = weights[1] - weights[0]
    print(f"  FedRAW's own extra: {1e6 * extra:.0f} us, {extra / flush_seconds:.3%} of a flush")


def schedule(clients: int, jobs: int) -> None:
    """Print the cost of a schedule without training, and the versions that stayed in memory."""
    most = 0

    def look(strategy: AsynchronousStrategy) -> None:
        nonlocal most
        assert strategy._run is not None
        in_flight = {job.version for job in strategy._run.state.jobs.values()}
        most = max(most, len(set(strategy._run.state.versions.kept()) - in_flight))

    concurrency = max(10, clients // 10)
    settings: dict[str, Any] = {
        "buffer_size": BUFFER,
        "concurrency": concurrency,
        "timing_only": True,
        "dispatch": "random",
    }
    arrays = ArrayRecord({"x": torch.zeros(1)})

    def start(versions: int, **more: Any) -> None:
        clock = VirtualClock(LogNormal(sigma=1.0))
        FedBuff(clock=clock, **settings, **more).start(NodesOnly(clients), arrays, num_rounds=versions)

    began = time.process_time()
    start(jobs // BUFFER)
    seconds = time.process_time() - began
    start(max(1, jobs // BUFFER // 100), on_step=look)
    print(
        f"schedule of {clients} clients, {jobs} jobs: {seconds:.1f} s of one core, "
        f"{1e6 * seconds / jobs:.0f} us a job; "
        f"versions in memory that are not in flight: at most {most}"
    )


def share_outside_training(preset: Path, workers: int, versions: int) -> None:
    """Print the share of a run's wall time that was not training."""
    flat = default_run_config() | flatten(tomllib.loads(preset.read_text(encoding="utf-8")))
    if versions:
        flat["train.versions"] = versions
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        config = parse_run_config(flat | {"output.dir": folder}, FairFALConfig)
        grid = Threads(config.data.clients, config.flat(), workers)
        began = time.perf_counter()
        run(grid, config)
        wall = time.perf_counter() - began
    share = 1.0 - grid.seconds / (workers * wall)
    print(
        f"{preset.name}, {workers} workers: {wall:.0f} s, {share:.1%} of the workers' time was not training "
        f"(server: reading data, waiting for the order of arrivals, aggregation, evaluation)"
    )


def main() -> None:
    """Run the benchmarks and print their figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=9, help="timed flushes (default: 9)")
    parser.add_argument("--jobs", type=int, default=100_000, help="jobs of the schedules (default: 100000)")
    parser.add_argument("--preset", type=Path, help="run this preset, too")
    parser.add_argument("--workers", type=int, default=2, help="workers of that run (default: 2)")
    parser.add_argument("--versions", type=int, default=0, help="its versions (default: the preset's)")
    options = parser.parse_args()
    with quiet_flower():
        flushes(options.turns)
        for clients in (100, 1000, 10_000):
            schedule(clients, options.jobs)
    if options.preset is not None:
        share_outside_training(options.preset, options.workers, options.versions)


if __name__ == "__main__":
    main()
