"""One client's side of active learning: its labelled set, its local-only model and its queries."""

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord, RecordDict

from datasets.randomness import generator, torch_generator
from fairfal_app.label_store import FlowerStateLabelStore
from fairfal_app.options import needs_local_model, query_strategy
from fairfal_app.oracle import SimulatedOracle
from fairfal_app.query.base import QueryInput, random_positions, select
from fairfal_app.query.scalars import ClientScalars, choose_query_model, client_scalars, model_score
from federation import records
from federation.client import Client, array_record, initial_model, label_coverage, train_settings
from learning.models import ImageClassifier
from learning.train import train_local_only

# The local-only model waits in the client's Flower state between the two halves of a query.
_LOCAL_ONLY = "fairfal.local-only"
_LOCAL_ONLY_ROUND = "fairfal.local-only-round"


class Labelling:
    """A client of a FairFAL run, with the labels it has so far.

    Labels and the local-only model are kept in the client's Flower state, so that it does not matter which
    process answers a message.
    """

    def __init__(self, context: Context) -> None:
        self.client = Client.of(context)
        self.config = self.client.config
        self.state: RecordDict = context.state
        self.store = FlowerStateLabelStore(context.state, self.client.site)

    def labelled(self) -> tuple[np.ndarray, np.ndarray]:
        """Return ids and labels of the labelled images, int64 (L,) each."""
        return self.store.labelled()

    def estimate(self, label_round: int, arrays: ArrayRecord) -> ClientScalars | None:
        """Return gamma_k and d_k before the query of ``label_round``; None when nothing is labelled."""
        ids, labels = self.labelled()
        if len(ids) == 0:
            return None
        images = self.client.images(ids)
        local = self._local_only_model(label_round, images, labels)
        return client_scalars(
            self.client.predict(self.client.model(arrays), images), self.client.predict(local, images), labels
        )

    def select(
        self, label_round: int, budget: int, arrays: ArrayRecord | None, gamma_mean: float | None
    ) -> MetricRecord:
        """Choose the images of ``label_round``, hand them to the oracle and store what it answers.

        A request that comes twice finds the images that were chosen the first time.

        Parameters
        ----------
        label_round
            From 1; the choice of the first one is random.
        budget
            Images to choose; the whole pool if it is smaller.
        arrays
            The global model; None in the first label round.
        gamma_mean
            Mean of the clients' gammas; None where no query of the run needs it.
        """
        queried, rounds = self.store.queried()
        chosen = queried[rounds == label_round]
        metrics: records.Metrics = {}
        if len(chosen) == 0:
            pool = self.client.pool[~np.isin(self.client.pool, queried)]
            rng = generator(self.config.seed, "query", label_round, self.client.site)
            if arrays is None:
                positions = random_positions(len(pool), min(budget, len(pool)), rng)
            else:
                positions, metrics = self._query(label_round, pool, budget, arrays, gamma_mean, rng)
            chosen = pool[positions]
            self.store.record_query(label_round, chosen)
        oracle = SimulatedOracle(self.client.data.train.labels, self.client.site)
        oracle.ask(label_round, chosen)
        self.store.add(label_round, *oracle.collect(chosen))
        for key in (_LOCAL_ONLY, _LOCAL_ONLY_ROUND):
            self.state.pop(key, None)
        return self._answer(label_round, len(chosen), metrics)

    def _query(
        self,
        label_round: int,
        pool: np.ndarray,
        budget: int,
        arrays: ArrayRecord,
        gamma_mean: float | None,
        rng: np.random.Generator,
    ) -> tuple[np.ndarray, records.Metrics]:
        """Return the chosen positions of the pool, and the scalars behind the choice of the query model."""
        client, query = self.client, self.config.query
        ids, labels = self.labelled()
        labelled_images, pool_images = client.images(ids), client.images(pool)
        global_model = client.model(arrays)
        labelled_global = client.predict(global_model, labelled_images)
        local_model, labelled_local = None, None
        metrics: records.Metrics = {}
        query_model = choose_query_model("global", None)
        if len(ids) > 0 and needs_local_model(query):
            local_model = self._local_only_model(label_round, labelled_images, labels)
            labelled_local = client.predict(local_model, labelled_images)
            discrepancy = client_scalars(labelled_global, labelled_local, labels).discrepancy
            assert discrepancy is not None
            assert gamma_mean is not None
            score = model_score(discrepancy, gamma_mean)
            query_model = choose_query_model(query.chosen_model, score, query.delta)
            metrics = {records.MODEL_SCORE: score, records.GLOBAL_MODEL: int(query_model == "global")}
        inputs = QueryInput(
            pool_global=client.predict(global_model, pool_images),
            pool_local=None if local_model is None else client.predict(local_model, pool_images),
            labelled_global=labelled_global,
            labelled_local=labelled_local,
            labels=labels,
            query_model=query_model,
            gamma_mean=gamma_mean,
        )
        return select(query_strategy(query), inputs, budget, rng).positions, metrics

    def _local_only_model(
        self, label_round: int, images: torch.Tensor, labels: np.ndarray
    ) -> ImageClassifier:
        """Return the model trained on this client's labels alone, from the state or trained now.

        It starts from the weights with which the training before the query of ``label_round`` started.
        """
        kept = self.state.config_records.get(_LOCAL_ONLY_ROUND)
        if kept is not None and kept[records.LABEL_ROUND] == label_round:
            return self.client.model(self.state.array_records[_LOCAL_ONLY])
        model = initial_model(self.config, self.client.data, label_round - 1)
        train_local_only(
            model,
            images,
            torch.from_numpy(labels),
            train_settings(self.config, self.config.train.lr, self.config.train.local_only_epochs),
            self.client.normalisation,
            torch_generator(self.config.seed, "local-only training", label_round, self.client.site),
            self.client.device,
        )
        self.state[_LOCAL_ONLY] = array_record(model)
        self.state[_LOCAL_ONLY_ROUND] = ConfigRecord({records.LABEL_ROUND: label_round})
        return model

    def _answer(self, label_round: int, budget: int, metrics: records.Metrics) -> MetricRecord:
        """Return what the server learns of a query: counts, coverage and scalars, no id and no label."""
        _, labels = self.labelled()
        classes = self.client.data.num_classes
        answer = MetricRecord(metrics)
        answer[records.BUDGET] = budget
        answer[records.NUM_LABELLED] = len(labels)
        answer[records.LABEL_COVERAGE] = label_coverage(labels, classes)
        if self.config.oracle.name == "simulated":
            bought = labels[self.store.labelled_rounds() == label_round]
            answer[records.CLASS_COUNTS] = np.bincount(bought, minlength=classes).tolist()
        return answer
