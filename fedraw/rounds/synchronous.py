"""Flower's synchronous strategies, made safe for models with batch normalisation and fixed in their order.

Flower averages integer arrays into floats, and its adaptive strategies take their step on batch-norm running
statistics too, where a variance can become negative. Here buffers are plain weighted averages in every
strategy and every array keeps its dtype.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAdam, FedProx, FedYogi

from fedraw.arrays import is_buffer, restore_dtype
from fedraw.errors import SettingError, WeightError
from fedraw.metrics import with_examples
from fedraw.names import look_up
from fedraw.randomness import generator
from fedraw.rounds.rounds import Rounds


class PlainBuffers(Rounds):
    """Mixin in front of one of Flower's averaging strategies.

    Parameters
    ----------
    buffer_keys : collection of str or None
        Arrays that are averaged plainly; None takes the names of batch-norm buffers.
    participation : float
        Share of the nodes that train in a round, in (0, 1]; at least one trains.
    seed : int
        Seed of the draw of the participants.
    sites : mapping of int to str or None
        Name of each node. Draws and sums go in the order of names, for node ids differ from run to run.
    **settings
        Settings of Flower's strategy.
    """

    def __init__(
        self,
        *,
        buffer_keys: Collection[str] | None = None,
        participation: float = 1.0,
        seed: int = 0,
        sites: Mapping[int, str] | None = None,
        **settings: Any,
    ) -> None:
        if not 0.0 < participation <= 1.0:
            raise SettingError(f"participation is {participation}; it is a share of the nodes, in (0, 1]")
        super().__init__(**settings)
        self.buffer_keys = buffer_keys
        self.participation = participation
        self.seed = seed
        self.sites = sites

    def _site_order(self, node: int) -> tuple[str, int]:
        return ("" if self.sites is None else self.sites.get(node, ""), node)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Configure the round for every node and keep the seeded share that takes part."""
        messages = sorted(
            super().configure_train(server_round, arrays, config, grid),
            key=lambda message: self._site_order(message.metadata.dst_node_id),
        )
        count = max(1, math.floor(self.participation * len(messages) + 1e-9))
        if count >= len(messages):
            return messages
        rng = generator(self.seed, "participation", server_round)
        chosen = np.sort(rng.choice(len(messages), size=count, replace=False))
        return [messages[i] for i in chosen]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate as Flower's strategy does, then put plain averages in the place of buffers.

        Raises
        ------
        WeightError
            The weights of the replies give no average.
        """
        replies = self._in_order(replies)
        contents = [message.content for message in replies if message.has_content()]
        weights = [
            value
            for content in contents
            for record in content.metric_records.values()
            if isinstance(value := record.get(self.weighted_by_key), int | float)
        ]
        if weights:
            check_weights(weights, self.weighted_by_key)
        arrays, metrics = super().aggregate_train(server_round, replies)
        if arrays is None:
            return arrays, metrics

        shares = np.asarray(weights, dtype=np.float64) / sum(weights)
        records = [next(iter(content.array_records.values())) for content in contents]
        result = {}
        for key, aggregated in arrays.items():
            array = aggregated.numpy()
            if is_buffer(key, self.buffer_keys):
                array = np.tensordot(shares, np.stack([record[key].numpy() for record in records]), axes=1)
            result[key] = Array(restore_dtype(array, np.dtype(records[0][key].dtype)))
        return ArrayRecord(result), metrics

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Average the metrics of the clients that have test images; None where none has.

        In the order of names: Flower draws the evaluating nodes in a random one.
        """
        measured = with_examples(self._in_order(replies), self.weighted_by_key)
        return super().aggregate_evaluate(server_round, measured)

    def _in_order(self, replies: Iterable[Message]) -> list[Message]:
        return sorted(replies, key=lambda message: self._site_order(message.metadata.src_node_id))


def check_weights(weights: list[int | float], key: str) -> None:
    """Raise WeightError unless the weights are finite, none is negative and one is positive."""
    if any(not np.isfinite(weight) or weight < 0 for weight in weights):
        raise WeightError(
            f"the metric '{key}' of the replies is {weights}; weights are finite and not negative"
        )
    if sum(weights) == 0:
        raise WeightError(
            f"the metric '{key}' is 0 in all {len(weights)} replies, so they have no weighted average; "
            "at least one client must have examples to train on"
        )


class BufferedFedAvg(PlainBuffers):
    """FedAvg (arXiv 1602.05629)."""


class BufferedFedProx(PlainBuffers, FedProx):
    """FedProx (arXiv 1812.06127): sends ``proximal-mu`` to the clients."""


class BufferedFedAdam(PlainBuffers, FedAdam):
    """FedAdam (arXiv 2003.00295)."""


class BufferedFedYogi(PlainBuffers, FedYogi):
    """FedYogi (arXiv 2003.00295)."""


SYNCHRONOUS: dict[str, Callable[..., PlainBuffers]] = {
    "fedavg": BufferedFedAvg,
    "fedprox": BufferedFedProx,
    "fedadam": BufferedFedAdam,
    "fedyogi": BufferedFedYogi,
}


def build_synchronous(
    name: str,
    *,
    proximal_mu: float,
    server_lr: float,
    buffer_keys: Collection[str] | None,
    participation: float = 1.0,
    fraction_evaluate: float = 0.0,
    seed: int = 0,
    sites: Mapping[int, str] | None = None,
) -> PlainBuffers:
    """Return one of Flower's synchronous strategies that works with any number of nodes.

    Parameters
    ----------
    name : str
        A key of ``SYNCHRONOUS``.
    proximal_mu : float
        Weight of the proximal term; ``fedprox`` alone uses it.
    server_lr : float
        Learning rate of the server; ``fedadam`` and ``fedyogi`` alone use it.
    fraction_evaluate : float
        Share of the nodes that evaluate; 0 evaluates at no node.
    buffer_keys, participation, seed, sites
        See ``PlainBuffers``.
    """
    constructor = look_up(SYNCHRONOUS, name, "synchronous strategy")
    own: dict[str, float] = {}
    if name == "fedprox":
        own["proximal_mu"] = proximal_mu
    elif name in ("fedadam", "fedyogi"):
        own["eta"] = server_lr
    return constructor(
        buffer_keys=buffer_keys,
        participation=participation,
        seed=seed,
        sites=sites,
        fraction_train=1.0,
        fraction_evaluate=fraction_evaluate,
        min_train_nodes=1,
        min_evaluate_nodes=1,
        min_available_nodes=1,
        **own,
    )
