"""One client's side of active learning: its labelled set, its local-only model and its queries."""

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict

from datasets.randomness import generator, torch_generator
from fairfal_app.config import FairFALConfig
from fairfal_app.label_store import LabelStore, Scalars, client_folder
from fairfal_app.options import needs_local_model, query_strategy
from fairfal_app.oracle import SimulatedOracle
from fairfal_app.query.base import QueryInput, QueryModel, random_positions, select
from fairfal_app.query.scalars import ClientScalars, choose_query_model, client_scalars, model_score
from federation import records
from federation.client import Client, array_record, initial_model, label_coverage, train_settings
from federation.config.run_config import parse_run_config
from learning.models import ImageClassifier
from learning.predict import Predictions
from learning.train import train_local_only

# In simulation the next message may be answered on another machine, whose disk does not have the labels, or
# not yet. So they go with the client's Flower state, too, which no message carries.
_LABELS = "fairfal.labels"
_CONTENT = "content"

# The local-only model waits in the client's Flower state between the two halves of a query; where it is lost,
# it is trained again and comes out the same.
_LOCAL_ONLY = "fairfal.local-only"
_LOCAL_ONLY_OF = "fairfal.local-only-of"


_NO_LABELS = np.zeros(0, dtype=np.int64)


def _no_predictions(images: int, classes: int) -> Predictions:
    """Return what stands for the predictions of images where a strategy looks at none."""
    return Predictions(np.zeros((images, classes)), np.zeros((images, 0), dtype=np.float32))


class Labelling:
    """A client of a FairFAL run, with the labels it has so far.

    Labels lie on the client's disk, and in its Flower state, so that it does not matter which process on
    which machine answers a message, nor which was killed before. Everything is answered as of the label round
    that the server is in: it may have gone back to a checkpoint.
    """

    def __init__(self, message: Message, context: Context) -> None:
        self.config = parse_run_config(context.run_config, FairFALConfig)
        self.client = Client.of(context, self.config)
        self.state: RecordDict = context.state
        self.run_key = str(message.content.config_records[records.CONFIG][records.RUN])
        folder = client_folder(context.node_config, self.run_key, self.client.site)
        known = self.state.config_records.get(_LABELS, ConfigRecord({records.RUN: ""}))
        content = str(known[_CONTENT]) if known[records.RUN] == self.run_key else ""
        self.store = LabelStore(folder, self.client.site, content)
        self._keep_in_state()

    def _keep_in_state(self) -> None:
        self.state[_LABELS] = ConfigRecord({records.RUN: self.run_key, _CONTENT: self.store.text})

    def labelled(self, label_round: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return ids and labels of the images labelled until a label round, or ever, int64 (L,) each."""
        return self.store.labelled(label_round)

    def estimate(self, label_round: int, arrays: ArrayRecord) -> ClientScalars | None:
        """Return gamma_k and d_k before a query; None where no image is labelled.

        A client whose images are all labelled has a gamma_k, which counts in the mean of all clients, and no
        d_k, since it has no query to choose a model for.
        """
        ids, labels = self.labelled(label_round - 1)
        if len(ids) == 0:
            return None
        images = self.client.images(ids)
        labelled_global = self.client.predict(self.client.model(arrays), images)
        labelled_local = None
        if len(ids) < len(self.client.pool):
            local = self._local_only_model(label_round, images, labels)
            labelled_local = self.client.predict(local, images)
        return client_scalars(labelled_global, labelled_local, labels)

    def select(
        self, label_round: int, budget: int, arrays: ArrayRecord | None, gamma_mean: float | None
    ) -> MetricRecord:
        """Choose the images of ``label_round``, hand them to the oracle and store what it answers.

        A request that comes twice gets the answer that it got the first time.

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
        if len(chosen) == 0:
            scalars: Scalars = {}
            pool = self.client.pool[~np.isin(self.client.pool, queried)]
            rng = generator(self.config.seed, "query", label_round, self.client.site)
            if arrays is None or len(pool) == 0:
                positions = random_positions(len(pool), min(budget, len(pool)), rng)
            else:
                positions, scalars = self._query(label_round, pool, budget, arrays, gamma_mean, rng)
            chosen = pool[positions]
            self.store.record_query(label_round, chosen, scalars)
        oracle = SimulatedOracle(self.client.data.train.labels, self.client.site)
        oracle.ask(label_round, chosen)
        self.store.add(label_round, *oracle.collect(chosen))
        self._keep_in_state()
        for key in (_LOCAL_ONLY, _LOCAL_ONLY_OF):
            self.state.pop(key, None)
        return self._answer(label_round, len(chosen))

    def _query(
        self,
        label_round: int,
        pool: np.ndarray,
        budget: int,
        arrays: ArrayRecord,
        gamma_mean: float | None,
        rng: np.random.Generator,
    ) -> tuple[np.ndarray, Scalars]:
        """Return the chosen positions of the pool, and the scalars behind the choice of the query model."""
        client, query = self.client, self.config.query
        strategy = query_strategy(query)
        if not strategy.needs_predictions:
            nothing = _no_predictions(len(pool), client.data.num_classes)
            inputs = QueryInput(
                nothing, None, _no_predictions(0, client.data.num_classes), None, _NO_LABELS, "global"
            )
            return select(strategy, inputs, budget, rng).positions, {}
        ids, labels = self.labelled(label_round - 1)
        labelled_images, pool_images = client.images(ids), client.images(pool)
        global_model = client.model(arrays)
        labelled_global = client.predict(global_model, labelled_images)
        local_model, labelled_local = None, None
        scalars: Scalars = {}
        query_model: QueryModel = "global"
        if len(ids) > 0 and needs_local_model(query):
            local_model = self._local_only_model(label_round, labelled_images, labels)
            labelled_local = client.predict(local_model, labelled_images)
            discrepancy = client_scalars(labelled_global, labelled_local, labels).discrepancy
            assert discrepancy is not None
            assert gamma_mean is not None
            score = model_score(discrepancy, gamma_mean)
            query_model = choose_query_model(query.chosen_model, score, query.delta)
            scalars[records.MODEL_SCORE] = score
        if len(ids) > 0:
            scalars[records.GLOBAL_MODEL] = int(query_model == "global")
        inputs = QueryInput(
            pool_global=client.predict(global_model, pool_images),
            pool_local=None if local_model is None else client.predict(local_model, pool_images),
            labelled_global=labelled_global,
            labelled_local=labelled_local,
            labels=labels,
            query_model=query_model,
            gamma_mean=gamma_mean,
        )
        return select(strategy, inputs, budget, rng).positions, scalars

    def _local_only_model(
        self, label_round: int, images: torch.Tensor, labels: np.ndarray
    ) -> ImageClassifier:
        """Return the model trained on this client's labels alone, from the state or trained now.

        It starts from the weights with which the training before the query of ``label_round`` started.
        """
        of = ConfigRecord({records.RUN: self.run_key, records.LABEL_ROUND: label_round})
        if self.state.config_records.get(_LOCAL_ONLY_OF) == of:
            return self.client.model(self.state.array_records[_LOCAL_ONLY])
        train = self.config.train
        model = initial_model(self.config, self.client.data, label_round - 1)
        train_local_only(
            model,
            images,
            torch.from_numpy(labels),
            train_settings(self.config, train.lr, train.local_only_epochs),
            self.client.normalisation,
            torch_generator(self.config.seed, "local-only training", label_round, self.client.site),
            self.client.device,
            decay=train.lr_decay,
            decay_at=train.lr_decay_at,
            schedule=train.local_only_schedule,
        )
        self.state[_LOCAL_ONLY] = array_record(model)
        self.state[_LOCAL_ONLY_OF] = of
        return model

    def _answer(self, label_round: int, budget: int) -> MetricRecord:
        """Return what the server learns of a query: counts, coverage and scalars, no id and no label."""
        _, labels = self.labelled(label_round)
        classes = self.client.data.num_classes
        answer = MetricRecord(dict(self.store.scalars(label_round)))
        answer[records.BUDGET] = budget
        answer[records.NUM_LABELLED] = len(labels)
        answer[records.LABEL_COVERAGE] = label_coverage(labels, classes)
        if self.config.oracle.name == "simulated":
            _, ever = self.labelled()
            bought = ever[self.store.labelled_rounds() == label_round]
            answer[records.CLASS_COUNTS] = np.bincount(bought, minlength=classes).tolist()
        return answer
