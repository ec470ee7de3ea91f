"""Messages on their way: sent one at a time, replies collected without Flower's long sleeps."""

import time
from collections.abc import Collection

from flwr.app import Message
from flwr.serverapp import Grid

SHORTEST_SLEEP = 0.0005
LONGEST_SLEEP = 0.05
NODE_SLEEP = 0.2


def wait_for_nodes(grid: Grid, count: int, seconds: float) -> list[int]:
    """Return the connected nodes as soon as there are ``count``, or after ``seconds``."""
    end = time.monotonic() + seconds
    while len(nodes := list(grid.get_node_ids())) < count and time.monotonic() < end:
        time.sleep(NODE_SLEEP)
    return nodes


class Mailbox:
    """The messages in flight on a grid and the replies that nobody has taken yet."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._outstanding: dict[str, None] = {}
        self._replies: dict[str, Message] = {}

    def send(self, message: Message) -> str | None:
        """Push a message and return its id, or None when its node cannot be reached."""
        pushed = list(self._grid.push_messages([message]))
        if not pushed or not pushed[0]:
            return None
        self._outstanding[pushed[0]] = None
        return pushed[0]

    def poll(self) -> None:
        """Pull the replies that are there, each once: a second pull is an error in Flower."""
        if not self._outstanding:
            return
        for reply in list(self._grid.pull_messages(list(self._outstanding))):
            message_id = reply.metadata.reply_to_message_id
            if message_id in self._outstanding:
                del self._outstanding[message_id]
                self._replies[message_id] = reply

    def has(self, message_id: str) -> bool:
        """Tell whether the reply to a message was pulled and not taken yet."""
        return message_id in self._replies

    def take(self, message_id: str) -> Message:
        """Return the reply to a message and forget it."""
        return self._replies.pop(message_id)

    def forget(self, message_id: str) -> None:
        """Give up a message: a late reply to it is ignored."""
        self._outstanding.pop(message_id, None)
        self._replies.pop(message_id, None)

    def wait(self, message_ids: Collection[str], seconds: float) -> None:
        """Poll until all of these messages have replies, or ``seconds`` have passed."""
        end = time.monotonic() + seconds
        sleep = SHORTEST_SLEEP
        while not all(message_id in self._replies for message_id in message_ids):
            self.poll()
            if all(message_id in self._replies for message_id in message_ids) or time.monotonic() >= end:
                return
            time.sleep(sleep)
            sleep = min(2 * sleep, LONGEST_SLEEP)

    def drain(self, seconds: float) -> None:
        """Wait for every outstanding reply and throw all of them away."""
        self.wait(list(self._outstanding), seconds)
        self._outstanding.clear()
        self._replies.clear()
