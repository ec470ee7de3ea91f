"""The clients of a run: who is free, who works, who pauses, and whose turn it is."""

import bisect
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from fedraw.errors import SettingError
from fedraw.randomness import generator

Policy = Literal["available", "random"]
State = Literal["idle", "busy", "waiting", "backoff", "off"]


@dataclass(slots=True)
class Participant:
    """What the server knows of one site.

    Attributes
    ----------
    node
        Its node now; None while it has none.
    state
        ``idle``; ``busy`` with a job; ``waiting`` to be available; in ``backoff`` after a failure; ``off``
        when it never will be available again.
    jobs
        Jobs dispatched so far.
    attempts
        Questions so far whether it is available.
    failures
        Failed jobs in a row.
    free_since
        Time since which it waits for a job.
    """

    site: str
    node: int | None
    state: State = "idle"
    jobs: int = 0
    attempts: int = 0
    failures: int = 0
    free_since: float = 0.0

    @property
    def reachable(self) -> bool:
        """Whether an update of this client can be expected without a pause for a failure."""
        return self.state == "busy" or (self.node is not None and self.state in ("idle", "waiting"))


class Roster:
    """All clients, and the order in which they get jobs.

    Parameters
    ----------
    policy : str
        ``available``: who waits longest is next, ties by name. ``random``: a seeded uniform choice of who is
        free.
    sites : mapping of int to str or None
        Name of each node. None names nodes by their order, ``site-0`` being the node of the lowest id.
    """

    def __init__(self, policy: Policy, seed: int, sites: Mapping[int, str] | None) -> None:
        self.policy = policy
        self.seed = seed
        self._names = sites
        self._node_sites: dict[int, str] = {}
        self.clients: dict[str, Participant] = {}
        self._idle: list[tuple[float, str]] = []

    def refresh(self, node_ids: Iterable[int], now: float) -> None:
        """Take note of the nodes that are connected now.

        Raises
        ------
        SettingError
            Two connected nodes have one name.
        """
        nodes = sorted(node_ids)
        here: dict[str, int] = {}
        for node in nodes:
            site = self._site(node, len(nodes))
            if site in here:
                raise SettingError(
                    f"nodes {here[site]} and {node} are both named '{site}'; `sites` must give each its own"
                )
            here[site] = node
        for site, node in here.items():
            client = self.clients.get(site)
            if client is None:
                self.clients[site] = Participant(site, node)
                self.free(site, now)
            else:
                client.node = node
                self._enqueue(client)
        for site in self.clients.keys() - here.keys():
            self.clients[site].node = None
            self._not_idle(site)

    def _site(self, node: int, count: int) -> str:
        if node not in self._node_sites:
            if self._names is not None:
                name = self._names.get(node, f"node-{node}")
            else:
                name = f"site-{len(self._node_sites):0{len(str(max(count - 1, 0)))}d}"
            self._node_sites[node] = name
        return self._node_sites[node]

    def free(self, site: str, now: float) -> None:
        """A client can take a job from now on."""
        client = self.clients[site]
        client.state, client.free_since = "idle", now
        self._enqueue(client)

    def _enqueue(self, client: Participant) -> None:
        """Put a free client that is connected in its place in the queue, once."""
        key = (client.free_since, client.site)
        place = bisect.bisect_left(self._idle, key)
        here = place < len(self._idle) and self._idle[place] == key
        if client.state == "idle" and client.node is not None and not here:
            self._idle.insert(place, key)

    def _not_idle(self, site: str) -> None:
        key = (self.clients[site].free_since, site)
        place = bisect.bisect_left(self._idle, key)
        if place < len(self._idle) and self._idle[place] == key:
            del self._idle[place]

    def next(self, draw: int) -> Participant | None:
        """Take the client whose turn it is out of the queue; ``draw`` numbers the random choices of a run."""
        if not self._idle:
            return None
        place = 0
        if self.policy == "random":
            place = int(generator(self.seed, "dispatch", draw).integers(len(self._idle)))
        return self.clients[self._idle.pop(place)[1]]

    def reachable(self) -> set[str]:
        """Return the sites from which an update can be expected."""
        return {site for site, client in self.clients.items() if client.reachable}

    def reaches(self, count: int) -> bool:
        """Tell whether updates can be expected from ``count`` clients or more."""
        found = (client for client in self.clients.values() if client.reachable)
        return sum(1 for _ in itertools.islice(found, count)) >= count

    def state(self) -> list[dict[str, Any]]:
        """Return all clients as JSON; node ids are of this run only and are left out."""
        records = []
        for site in sorted(self.clients):
            record = asdict(self.clients[site])
            del record["node"]
            records.append(record)
        return records

    def restore(self, records: list[dict[str, Any]]) -> None:
        """Go back to a state; clients get their nodes at the next ``refresh``."""
        self.clients = {record["site"]: Participant(node=None, **record) for record in records}
        self._idle = []
