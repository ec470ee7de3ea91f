"""The sites that are connected now, for runs that go on while a SuperNode stops and starts again."""

import logging
from collections.abc import Iterable

from flwr.app import Message

from federation.messages.failures import Failure, Kind, describe_request, explain_error
from federation.messages.grid import ClientGrid
from federation.messages.hello import hello_request, read_hellos
from federation.messages.replies import unusable_reply

logger = logging.getLogger("rarefl")


class ConnectedGrid(ClientGrid):
    """A grid of the sites that are connected at the moment.

    A SuperNode that was started again has a new node, which is asked for its name and takes the place of the
    old one when it has answered. Nobody waits for that: an answer may take as long as reading the data.
    ``ClientGrid`` itself keeps the nodes of the start, since a round waits for all.

    Parameters
    ----------
    clients
        The grid behind it; its sites are known, and its participants take part.
    names
        Site of each node; new nodes are added to it.
    """

    def __init__(self, clients: ClientGrid, names: dict[int, str]) -> None:
        super().__init__(clients.inner, clients.sites, clients.num_classes, clients.run_key)
        self.share_books(clients)
        taking_part = set(clients.get_node_ids())
        self._taking_part = {site.name for site in self.sites if site.node_id in taking_part}
        self.names = names
        self._nodes = {name: node for node, name in names.items()}
        self._asked: dict[str, Message] = {}  # hellos without an answer, by message id
        self._failed: set[int] = set()
        self._strangers: set[int] = set()

    def get_node_ids(self) -> list[int]:
        """Return the connected node of each site that takes part, in the order of the sites."""
        connected = set(self.inner.get_node_ids())
        asked = {request.metadata.dst_node_id for request in self._asked.values()}
        self._ask(connected - self.names.keys() - self._strangers - asked)
        self._meet()
        return [
            node
            for site in self.sites
            if site.name in self._taking_part and (node := self._nodes[site.name]) in connected
        ]

    def site_name(self, node_id: int) -> str:
        """Return the name of a node's site, or its number where it has no name."""
        return self.names.get(node_id, f"node {node_id}")

    def _ask(self, nodes: Iterable[int]) -> None:
        """Ask new nodes who they are."""
        for node in sorted(nodes):
            request = hello_request(node, self.run_key)
            (message_id,) = self.push_messages([request])
            if message_id:
                self._asked[message_id] = request

    def _meet(self) -> None:
        """Take in the answers that have come; a node that no site of this run sent is left alone."""
        for reply in self.pull_messages(list(self._asked)):
            request = self._asked.pop(reply.metadata.reply_to_message_id)
            node = request.metadata.dst_node_id
            if (failure := self._failure(request, reply)) is not None:
                # It is asked again at the next look, and told of once.
                if node not in self._failed:
                    self._failed.add(node)
                    self.failures.append(failure)
                    logger.warning("%s", failure)
                continue
            (site,) = read_hellos([reply])
            if site.name in self._nodes:
                logger.info("%s is back", site.name)
                self.names[node] = site.name
                self._nodes[site.name] = node
            else:
                logger.warning("%s is not part of this run, which began without it", site.name)
                self._strangers.add(node)

    def _failure(self, request: Message, reply: Message) -> Failure | None:
        kind: Kind = "unusable"
        if reply.has_error():
            reason, kind = explain_error(reply.error)
        else:
            reason = unusable_reply(request, reply.content, self.num_classes) or ""
        what = describe_request(request.metadata.message_type, request.content)
        return Failure(what, self.site_name(request.metadata.dst_node_id), reason, kind) if reason else None
