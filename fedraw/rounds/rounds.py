"""Rounds that can be stopped after any one and gone on with: Flower's loop, whose place is kept.

Flower's own ``Strategy.start`` numbers rounds from 1 and keeps its state in local variables.
"""

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result
from flwr.serverapp.strategy.fedopt import FedOpt

from fedraw.arrays import read_array
from fedraw.errors import CheckpointError
from fedraw.run.checkpoint import check_shapes, pack_metrics, under, unpack_metrics

LOGGER = logging.getLogger("flwr.fedraw")

# What the names of these strategies began with in checkpoints of before.
FORMER_PREFIX, PREFIX = "Buffered", "Steady"

# What Flower's adaptive strategies remember from round to round, by parameter.
MOMENTS = ("m_t", "v_t")


class Rounds(FedAvg):
    """Mixin in front of one of Flower's averaging strategies.

    Attributes
    ----------
    on_step
        Called with the strategy after each round; ``state_dict`` is valid then.
    version
        Rounds that are done.
    """

    on_step: Callable[[Any], None] | None = None
    version: int = 0
    _result: Result | None = None
    _resume: tuple[dict[str, np.ndarray], dict[str, Any]] | None = None

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run until ``num_rounds`` rounds are done, as Flower's strategies do.

        Parameters
        ----------
        grid, timeout, train_config, evaluate_config, evaluate_fn
            As in Flower's ``Strategy.start``; the untrained model is evaluated as round 0.
        initial_arrays : ArrayRecord
            The model; after ``load_state`` the arrays of the checkpoint take its place.
        num_rounds : int
            Rounds, counted from 1 also after ``load_state``.

        Returns
        -------
        Result
            The arrays are the initial ones if no round gave others.

        Raises
        ------
        CheckpointError
            The checkpoint's arrays are not those of the model.
        """
        train_config = ConfigRecord() if train_config is None else train_config
        evaluate_config = ConfigRecord() if evaluate_config is None else evaluate_config
        self.version, self._result = 0, Result()
        result = self._result
        result.arrays = initial_arrays
        if self._resume is not None:
            self._restore(initial_arrays)
        elif evaluate_fn is not None:
            _keep(result.evaluate_metrics_serverapp, 0, evaluate_fn(0, initial_arrays))
        self.summary()
        for server_round in range(self.version + 1, num_rounds + 1):
            LOGGER.info("[ROUND %d/%d]", server_round, num_rounds)
            messages = self.configure_train(server_round, result.arrays, train_config, grid)
            replies = grid.send_and_receive(messages, timeout=timeout)
            arrays, metrics = self.aggregate_train(server_round, replies)
            if arrays is not None:
                result.arrays = arrays
            _keep(result.train_metrics_clientapp, server_round, metrics)
            messages = self.configure_evaluate(server_round, result.arrays, evaluate_config, grid)
            replies = grid.send_and_receive(messages, timeout=timeout)
            _keep(
                result.evaluate_metrics_clientapp,
                server_round,
                self.aggregate_evaluate(server_round, replies),
            )
            if evaluate_fn is not None:
                measured = evaluate_fn(server_round, result.arrays)
                _keep(result.evaluate_metrics_serverapp, server_round, measured)
            self.version = server_round
            if self.on_step is not None:
                self.on_step(self)
        return result

    def state_dict(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the state after a round as named arrays and a dictionary for JSON.

        Valid within ``on_step`` and after ``start``.
        """
        result = self._result
        if result is None:
            raise CheckpointError("there is no run to save: call state_dict within on_step, or after start()")
        arrays = {f"model/{key}": read_array(array) for key, array in result.arrays.items()}
        for name in self._moments():
            arrays |= {f"{name}/{key}": np.asarray(a) for key, a in (getattr(self, name) or {}).items()}
        return arrays, {
            "strategy": type(self).__name__,
            "version": self.version,
            "train_metrics": pack_metrics(result.train_metrics_clientapp),
            "client_metrics": pack_metrics(result.evaluate_metrics_clientapp),
            "server_metrics": pack_metrics(result.evaluate_metrics_serverapp),
        }

    def load_state(self, arrays: dict[str, np.ndarray], state: dict[str, Any]) -> None:
        """Let the next ``start`` go on from a state of ``state_dict``.

        Raises
        ------
        CheckpointError
            The state is of another strategy.
        """
        written_by = str(state.get("strategy"))
        if written_by.startswith(FORMER_PREFIX):
            written_by = PREFIX + written_by.removeprefix(FORMER_PREFIX)
        if written_by != type(self).__name__:
            raise CheckpointError(
                f"the checkpoint is of {written_by}, this is {type(self).__name__}; resume "
                "with the strategy that wrote it"
            )
        self._resume = (arrays, state)

    def _restore(self, initial: ArrayRecord) -> None:
        assert self._resume is not None
        assert self._result is not None
        (arrays, state), self._resume = self._resume, None
        model = under(arrays, "model/")
        check_shapes({key: read_array(array) for key, array in initial.items()}, model)
        self._result.arrays = ArrayRecord({key: Array(array) for key, array in model.items()})
        for name in self._moments():
            setattr(self, name, under(arrays, f"{name}/") or None)
        self.version = state["version"]
        self._result.train_metrics_clientapp = unpack_metrics(state["train_metrics"])
        self._result.evaluate_metrics_clientapp = unpack_metrics(state["client_metrics"])
        self._result.evaluate_metrics_serverapp = unpack_metrics(state["server_metrics"])

    def _moments(self) -> tuple[str, ...]:
        return MOMENTS if isinstance(self, FedOpt) else ()


def _keep(metrics: dict[int, MetricRecord], server_round: int, record: MetricRecord | None) -> None:
    if record is not None:
        metrics[server_round] = record
