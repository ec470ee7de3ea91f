"""Flower's synchronous strategies, made safe for models with batch normalisation and fixed in their order.

Flower averages integer arrays into floats, and its adaptive strategies take their step on batch-norm running
statistics too, where a variance can become negative. Here buffers are plain weighted averages in every
strategy and every array keeps its dtype.
"""

import logging
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypedDict

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAdam, FedProx, FedYogi

from fedraw.arrays import is_buffer, read_array, readable, restore_dtype
from fedraw.errors import SettingError, WeightError
from fedraw.metrics import with_examples
from fedraw.options import StrategyOptions, SynchronousOptions, check_options, option, server_lr_option
from fedraw.randomness import generator
from fedraw.rounds.rounds import Rounds

LOGGER = logging.getLogger("flwr.fedraw")

# Server learning rate of FedAdam and FedYogi unless one is given.
ADAPTIVE_LR = 0.01


class RoundSettings(TypedDict, total=False):
    """What a run knows of a training in rounds and no option says; see ``SteadyRounds``."""

    buffer_keys: Collection[str] | None
    seed: int
    sites: Mapping[int, str] | None
    fraction_evaluate: float


class SteadyRounds(Rounds):
    """Mixin in front of one of Flower's averaging strategies: what makes it safe and repeatable.

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

    asynchronous: ClassVar[bool] = False
    buffered: ClassVar[bool] = False
    paper: ClassVar[str]
    """Where it is from, such as ``arXiv 1602.05629``."""
    Options: ClassVar[type[StrategyOptions]] = SynchronousOptions
    """What a configuration can set."""

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

    @classmethod
    def configured(cls, options: StrategyOptions, settings: RoundSettings, *, clients: int) -> Self:
        """Return the strategy that a configuration describes; it works with any number of nodes.

        Parameters
        ----------
        options : StrategyOptions
            An instance of the class's ``Options``.
        settings : RoundSettings
            What the run knows and no option says.
        clients : int
            Clients that train.

        Raises
        ------
        OptionError
            An option is outside of what is allowed.
        """
        check_options(options)
        any_number = dict.fromkeys(("min_train_nodes", "min_evaluate_nodes", "min_available_nodes"), 1)
        return cls(**{**any_number, **settings, **options.settings(clients)})

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

        A reply whose arrays cannot be read is left out with a warning, as Flower leaves out a failed one.

        Raises
        ------
        WeightError
            The weights of the replies give no average.
        """
        replies = [reply for reply in self._in_order(replies) if self._can_be_read(reply, server_round)]
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
            array = read_array(aggregated)
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

    def _can_be_read(self, reply: Message, server_round: int) -> bool:
        """Read the arrays of a reply, and let Flower's averages read them in the same way."""
        if not reply.has_content():
            return True
        for name, record in reply.content.array_records.items():
            try:
                reply.content[name] = readable(record)
            except ValueError as error:
                node = reply.metadata.src_node_id
                site = (self.sites or {}).get(node, f"node {node}")
                LOGGER.warning("round %d: the reply of %s is left out: %s", server_round, site, error)
                return False
        return True

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


class SteadyFedAvg(SteadyRounds):
    """Averages the models of the clients, by their examples."""

    paper: ClassVar[str] = "arXiv 1602.05629"


@dataclass(frozen=True)
class FedProxOptions(SynchronousOptions):
    """Options of FedProx."""

    proximal_mu: float = option(0.01, "weight of the proximal term", at_least=0)

    def settings(self, clients: int) -> dict[str, Any]:
        """Return the keyword arguments of the strategy."""
        return super().settings(clients) | {"proximal_mu": self.proximal_mu}


class SteadyFedProx(SteadyRounds, FedProx):
    """FedAvg whose clients are held near the global model by a proximal term."""

    paper: ClassVar[str] = "arXiv 1812.06127"
    Options: ClassVar[type[StrategyOptions]] = FedProxOptions


@dataclass(frozen=True)
class AdaptiveOptions(SynchronousOptions):
    """Options of FedAdam and FedYogi."""

    server_lr: float = server_lr_option()

    def settings(self, clients: int) -> dict[str, Any]:
        """Return the keyword arguments of the strategy."""
        return super().settings(clients) | {"eta": self.server_lr or ADAPTIVE_LR}


class SteadyFedAdam(SteadyRounds, FedAdam):
    """FedAvg whose mean change is a gradient for Adam at the server."""

    paper: ClassVar[str] = "arXiv 2003.00295"
    Options: ClassVar[type[StrategyOptions]] = AdaptiveOptions


class SteadyFedYogi(SteadyRounds, FedYogi):
    """FedAvg whose mean change is a gradient for Yogi at the server."""

    paper: ClassVar[str] = "arXiv 2003.00295"
    Options: ClassVar[type[StrategyOptions]] = AdaptiveOptions
