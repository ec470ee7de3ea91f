"""Flower's Grid without Ray or a SuperLink: messages are handled in this process, by threads, at once.

Content goes through protobuf on the way out and back, so a value that cannot travel fails here as well.
"""

import contextlib
import copy
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from unittest.mock import patch

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.serverapp import Grid, ServerApp
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity
from matplotlib.figure import Figure


class InProcessGrid(Grid):
    """A grid whose nodes are contexts in this process; one message at a time per node.

    ``latency(message)`` gives seconds to sleep before a message is handled. ``sent`` and ``received`` keep
    every content that travelled, for tests of what leaves a client.
    """

    def __init__(
        self,
        client_app: ClientApp,
        num_nodes: int,
        run_config: Mapping[str, object] | None = None,
        workers: int = 1,
        latency: Callable[[Message], float] | None = None,
    ) -> None:
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        self._run = Run.create_empty(run_id=1)
        self.app = client_app
        self.latency = latency
        self.contexts = {
            1000 + i: Context(
                run_id=1,
                node_id=1000 + i,
                node_config={"partition-id": i, "num-partitions": num_nodes},
                state=RecordDict(),
                run_config=dict(run_config or {}),
            )
            for i in range(num_nodes)
        }
        self.locks = {node: threading.Lock() for node in self.contexts}
        self.counter = itertools.count(1)
        self.replies: dict[str, Future[Message]] = {}
        self.pool = ThreadPoolExecutor(workers)
        self.sent: list[Message] = []
        self.received: list[Message] = []

    def set_run(self, run: Run) -> None:
        self._run = run

    @property
    def run(self) -> Run:
        return self._run

    def create_message(self, content, message_type, dst_node_id, group_id, ttl=None) -> Message:
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        return list(self.contexts)

    def _work(self, message: Message) -> Message:
        node = message.metadata.dst_node_id
        with self.locks[node]:
            if self.latency is not None:
                time.sleep(self.latency(message))
            try:
                content = recorddict_from_proto(recorddict_to_proto(message.content))
                arrived = Message(content, dst_node_id=node, message_type=message.metadata.message_type)
                arrived.metadata.__dict__["_message_id"] = message.metadata.message_id
                context = copy.deepcopy(self.contexts[node])
                reply = self.app(arrived, context)
                self.contexts[node] = context
                if reply.has_content():
                    content = recorddict_from_proto(recorddict_to_proto(reply.content))
                    reply = Message(content, reply_to=arrived)
            except Exception as error:
                reply = Message(Error(code=2, reason=f"{type(error)}:<'{error}'>"), reply_to=message)
        reply.metadata.__dict__["_message_id"] = f"r{next(self.counter)}"
        reply.metadata.__dict__["_src_node_id"] = node
        return reply

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        ids = []
        for message in list(messages):
            message_id = f"m{next(self.counter)}"
            message.metadata.__dict__["_message_id"] = message_id
            if message.metadata.dst_node_id not in self.contexts:
                ids.append("")
                continue
            self.sent.append(message)
            self.replies[message_id] = self.pool.submit(self._work, message)
            ids.append(message_id)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        ready = [i for i in list(message_ids) if i in self.replies and self.replies[i].done()]
        replies = [self.replies.pop(i).result() for i in ready]
        self.received.extend(replies)
        return replies

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        pending = set(self.push_messages(messages))
        replies: list[Message] = []
        end = None if timeout is None else time.monotonic() + timeout
        while pending and (end is None or time.monotonic() < end):
            for reply in self.pull_messages(pending):
                pending.discard(reply.metadata.reply_to_message_id)
                replies.append(reply)
            if pending:
                time.sleep(0.001)
        return replies


def run_in_process(
    server_app: ServerApp,
    client_app: ClientApp,
    num_nodes: int,
    run_config: Mapping[str, object],
    workers: int = 1,
    pictures: bool = False,
) -> InProcessGrid:
    """Run a ServerApp against a ClientApp in this process and return the grid with all that travelled.

    Without ``pictures`` figures are made but not rendered, which is up to half of the work of a small run;
    their files are empty.
    """
    grid = InProcessGrid(client_app, num_nodes, run_config, workers=workers)
    context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=dict(run_config))
    with contextlib.nullcontext() if pictures else patch.object(Figure, "savefig", _leave_empty):
        server_app(grid=grid, context=context)
    return grid


def _leave_empty(_: Figure, path: Path, **__: object) -> None:
    path.touch()
