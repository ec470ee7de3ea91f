"""The sites that are connected now, for runs that go on while a SuperNode stops and starts again."""

import logging
from collections.abc import Iterable

from federation.errors import AllClientsFailedError
from federation.grid import ClientGrid
from federation.hello import ask_names

logger = logging.getLogger("rarefl")


class ConnectedGrid(ClientGrid):
    """A grid of the sites that are connected at the moment.

    A SuperNode that was started again has a new node, which is asked for its name and takes the place of the
    old one. ``ClientGrid`` itself keeps the nodes of the start, since a round waits for all.

    Parameters
    ----------
    clients
        The grid behind it; its sites are known.
    names
        Site of each node; new nodes are added to it.
    patience
        Seconds to wait for the name of a new node.
    """

    def __init__(self, clients: ClientGrid, names: dict[int, str], patience: float) -> None:
        super().__init__(clients.inner, clients.sites, clients.num_classes, clients.run_key)
        self.failures, self.array_bytes = clients.failures, clients.array_bytes
        self.names = names
        self.patience = patience
        self._nodes = {name: node for node, name in names.items()}
        self._strangers: set[int] = set()

    def get_node_ids(self) -> list[int]:
        """Return the connected node of each site, in the order of the sites."""
        connected = set(self.inner.get_node_ids())
        self._meet(connected - self.names.keys() - self._strangers)
        return [node for site in self.sites if (node := self._nodes[site.name]) in connected]

    def site_name(self, node_id: int) -> str:
        """Return the name of a node's site, or its number where it has no name."""
        return self.names.get(node_id, f"node {node_id}")

    def _meet(self, nodes: Iterable[int]) -> None:
        """Ask new nodes who they are; one that no site of this run sent is left alone."""
        for node in sorted(nodes):
            try:
                (site,) = ask_names(self, [node], self.patience)
            except AllClientsFailedError:
                continue
            if site.name in self._nodes:
                logger.info("%s is back", site.name)
                self.names[node] = site.name
                self._nodes[site.name] = node
            else:
                logger.warning("%s is not part of this run, which began without it", site.name)
                self._strangers.add(node)
