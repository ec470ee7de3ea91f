"""The start of a run: the server waits for its nodes and learns who they are.

Everything that must be the same in every run (order, seeds, ties) goes by the names that the clients give
here, never by Flower's node ids, which are random.
"""

import logging
import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid

from federation import records
from federation.config.run_config import RunConfig
from federation.errors import AllClientsFailedError, ConfigError, NodesMissingError, SourceMismatchError
from federation.messages.failures import group_by_reason
from federation.messages.grid import ClientGrid, Site
from federation.runs.devices import gpu_notice
from federation.runs.fingerprint import source_fingerprint

logger = logging.getLogger("rarefl")

POLL_SECONDS = 0.2
STEADY_SECONDS = 2.0  # simulated nodes are registered at once, before the ServerApp starts


@dataclass(frozen=True)
class ClientSite(Site):
    """A site and what it told of itself.

    Attributes
    ----------
    pool_size
        Number of images that it may have labelled.
    num_labelled
        Number of images whose labels are at hand.
    label_coverage
        For each label 1 if a labelled example of it is at hand, else 0; (C,).
    device
        Where it computes, such as ``"cpu"`` or ``"cuda:0 (NVIDIA H200)"``.
    partition
        Its place in the partition of the data.
    """

    pool_size: int
    num_labelled: int
    label_coverage: tuple[int, ...]
    device: str
    partition: int


@dataclass(frozen=True)
class Federation:
    """The clients of a run, sorted by name; numbers inside names count as numbers (``site-9, site-10``)."""

    sites: tuple[ClientSite, ...]

    def __len__(self) -> int:
        return len(self.sites)


def wait_for_nodes(grid: ClientGrid, count: int, timeout: float) -> list[int]:
    """Return the ids of the connected nodes as soon as there are ``count``.

    Raises
    ------
    NodesMissingError
        There are fewer or more after ``timeout`` seconds; in simulation, as soon as their number is steady.
    """
    start = steady_since = time.monotonic()
    node_ids = grid.get_node_ids()
    if len(node_ids) != count:
        logger.info("waiting for clients: %d of %d are connected", len(node_ids), count)
    while len(node_ids) != count:
        now = time.monotonic()
        if now - start >= timeout or (grid.simulated and now - steady_since >= STEADY_SECONDS):
            raise NodesMissingError(_wrong_number(len(node_ids), count, now - start, grid.simulated))
        time.sleep(min(POLL_SECONDS, timeout))
        found = grid.get_node_ids()
        if len(found) != len(node_ids):
            steady_since = time.monotonic()
            logger.info("waiting for clients: %d of %d are connected", len(found), count)
        node_ids = found
    return node_ids


def _wrong_number(found: int, count: int, seconds: float, simulated: bool) -> str:
    message = f"found {found} of {count} clients after {seconds:.0f} s: data.clients = {count}"
    if simulated:
        return (
            f"{message}, and the simulation has {found}. "
            f'Start the run with --federation-config "num-supernodes={count} client-resources-num-cpus=1", '
            f"or set data.clients = {found}"
        )
    if found < count:
        return (
            f"{message}, and {found} SuperNodes are connected. Start {count - found} more (see "
            "`flwr supernode list`), raise nodes.timeout if they need longer, or lower data.clients"
        )
    return (
        f"{message}, and {found} SuperNodes are connected. Stop {found - count} of them (one that has just "
        f"been stopped or restarted counts for up to a minute), or set data.clients = {found}"
    )


def connect(grid: Grid, config: RunConfig, num_classes: int, run_key: str) -> tuple[ClientGrid, Federation]:
    """Wait for the clients that the run config asks for, say hello and tell who answered.

    ``run_key`` is the name by which clients find what they keep of the run.

    Raises what ``wait_for_nodes`` and ``say_hello`` raise.
    """
    clients = ClientGrid(grid, num_classes=num_classes, run_key=run_key)
    wait_for_nodes(clients, config.data.clients, config.nodes.timeout)
    federation = say_hello(clients, config.data.clients, config.nodes.reply_timeout)
    images = sum(site.pool_size for site in federation.sites)
    devices = devices_text(federation.sites)
    here = clients.simulated and torch.cuda.is_available()
    if notice := gpu_notice(here, [site.device for site in federation.sites]):
        logger.warning("%s", notice)
    logger.info("%d clients with %d images answered: %s", len(federation), images, devices)
    return clients, federation


def devices_text(sites: Sequence[ClientSite]) -> str:
    """Return which partitions are on which device, ``"cpu 0-5, cuda:0 (NVIDIA H200) 6-9"``.

    Where all are on one device, return the device alone.
    """
    places: dict[str, list[int]] = {}
    for site in sorted(sites, key=lambda site: site.partition):
        places.setdefault(site.device, []).append(site.partition)
    if len(places) == 1:
        return next(iter(places))
    return ", ".join(f"{device} {_ranges(places[device])}" for device in sorted(places))


def _ranges(numbers: Sequence[int]) -> str:
    """Return ascending numbers as ``"0-2 5 7-8"``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return " ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def say_hello(grid: ClientGrid, num_clients: int, timeout: float) -> Federation:
    """Ask every connected client who it is, check the answers and name the grid's sites.

    Parameters
    ----------
    grid
        Its sites are set to the federation's.
    num_clients
        How many clients must answer.
    timeout
        Seconds to wait for the answers; a first answer may wait for imports and for reading the data.

    Raises
    ------
    NodesMissingError
        Fewer clients answered; with the reasons of the others.
    ConfigError
        Two clients have the same name or the same partition-id.
    SourceMismatchError
        A client runs other source files than this server.
    """
    failed = len(grid.failures)
    sites = ask_names(grid, grid.get_node_ids(), timeout)
    if len(sites) != num_clients:
        reasons = group_by_reason(grid.failures[failed:])
        raise NodesMissingError(f"{len(sites)} of {num_clients} clients answered the hello\n{reasons}")
    sites = sorted(sites, key=lambda site: _natural(site.name))
    _check_names(sites)
    _check_partitions(sites)
    grid.set_sites(sites)
    return Federation(tuple(sites))


def ask_names(grid: ClientGrid, node_ids: Sequence[int], timeout: float) -> list[ClientSite]:
    """Ask nodes who they are, and return what those told that answered within ``timeout`` seconds.

    Raises
    ------
    AllClientsFailedError
        None answered.
    SourceMismatchError
        One runs other source files than this server.
    """
    replies = grid.send_and_receive(
        [hello_request(node_id, grid.run_key) for node_id in node_ids], timeout=timeout
    )
    return read_hellos(replies)


def hello_request(node_id: int, run_key: str) -> Message:
    """Return the message that asks a node who it is, in the run of this name."""
    content = RecordDict({records.CONFIG: ConfigRecord({records.RUN: run_key})})
    return Message(content, node_id, records.HELLO)


def read_hellos(replies: Sequence[Message]) -> list[ClientSite]:
    """Return what usable replies to a hello tell.

    Raises
    ------
    SourceMismatchError
        One comes from other source files than this server's.
    """
    _check_sources(replies)
    return [_site(reply) for reply in replies]


def meet_again(grid: ClientGrid, timeout: float) -> None:
    """Look for sites whose node has gone, as when their SuperNode was started again with a new node.

    New nodes are asked for their names, for up to ``timeout`` seconds, and take the places of the old ones.
    """
    connected = set(grid.inner.get_node_ids())
    known = {site.node_id for site in grid.sites}
    gone, strangers = known - connected, sorted(connected - known)
    if not gone or not strangers:
        return
    try:
        found = {site.name: site for site in ask_names(grid, strangers, timeout)}
    except AllClientsFailedError:
        return
    back = {site.name for site in grid.sites if site.node_id in gone and site.name in found}
    for name in sorted(back, key=_natural):
        logger.info("%s is back", name)
    grid.set_sites([found[site.name] if site.name in back else site for site in grid.sites])


def _site(reply: Message) -> ClientSite:
    identity: ConfigRecord = reply.content.config_records[records.CONFIG]
    holdings: MetricRecord = reply.content.metric_records[records.METRICS]
    coverage = holdings[records.LABEL_COVERAGE]
    pool_size, num_labelled = holdings[records.POOL_SIZE], holdings[records.NUM_LABELLED]
    assert isinstance(coverage, list)
    assert isinstance(pool_size, int)
    assert isinstance(num_labelled, int)
    return ClientSite(
        node_id=reply.metadata.src_node_id,
        name=str(identity[records.SITE]),
        pool_size=pool_size,
        num_labelled=num_labelled,
        label_coverage=tuple(int(held) for held in coverage),
        device=str(identity[records.DEVICE]),
        partition=int(identity[records.PARTITION]),  # type: ignore[arg-type]
    )


def _natural(name: str) -> tuple[list[tuple[int, int, str]], str]:
    """Sort key that compares runs of digits as numbers."""
    parts = re.split(r"([0-9]+)", name)
    return [
        (0, int(part), "") if part.isdecimal() and part.isascii() else (1, 0, part) for part in parts
    ], name


def _check_names(sites: Sequence[ClientSite]) -> None:
    counts = Counter(site.name for site in sites)
    if shared := [f"{name} ({number} clients)" for name, number in counts.items() if number > 1]:
        raise ConfigError(
            f"several clients have the same name: {', '.join(shared)}. Every SuperNode needs a partition-id "
            "of its own, or a site of its own, in its --node-config"
        )


def _check_partitions(sites: Sequence[ClientSite]) -> None:
    names: dict[int, list[str]] = {}
    for site in sites:
        names.setdefault(site.partition, []).append(site.name)
    for partition, shared in names.items():
        if len(shared) > 1:
            raise ConfigError(
                f"{', '.join(shared)} have the same partition-id = {partition}, that is, the same images. "
                "Give every SuperNode a partition-id of its own in its --node-config"
            )


def _check_sources(replies: Sequence[Message]) -> None:
    digest, root = source_fingerprint()
    others: dict[str, list[str]] = {}
    for reply in replies:
        identity = reply.content.config_records[records.CONFIG]
        if identity[records.FINGERPRINT] != digest:
            others.setdefault(str(identity[records.SOURCE]), []).append(str(identity[records.SITE]))
    if others:
        raise SourceMismatchError(_other_sources(root, others))


def _other_sources(root: Path, others: dict[str, list[str]]) -> str:
    lines = [f"  {', '.join(sorted(names, key=_natural))}: {path}" for path, names in others.items()]
    return "\n".join(
        [
            f"the server runs the source files in {root}, and these clients run others:",
            *lines,
            "In simulation, Ray workers import from the folder in which the SuperLink was started, if the "
            "packages lie there. Stop that SuperLink, and start it from an empty folder or from the folder "
            "of this app. Where the two paths are the same, a file was edited while the run was starting: "
            "start it again.",
        ]
    )
