"""Evaluation of the global model: on the server's test images, and on those of the clients."""

import math
from contextlib import suppress

import numpy as np
from flwr.app import ArrayRecord, MetricRecord
from sklearn.metrics import confusion_matrix

from datasets.federated import FederatedData
from federation import records
from federation.client import model_of
from federation.config.run_config import RunConfig
from federation.errors import AllClientsFailedError
from federation.measures import measure_row
from federation.messages.asking import ask
from federation.messages.grid import ClientGrid
from learning.device import pick_device
from learning.predict import predict
from learning.views import Normalisation


class NonFinitePredictionsError(Exception):
    """A model predicts NaN; its measures would be those of a model that always predicts the first label."""


class ServerEvaluation:
    """Measures global models on the whole test split.

    Attributes
    ----------
    confusion
        Test images by true label (rows) and predicted label (columns) of the model measured last, int64
        (C, C); zeros before.
    """

    def __init__(self, config: RunConfig, data: FederatedData) -> None:
        self.config = config
        self.data = data
        self.device = pick_device()
        self.normalisation = Normalisation(data.card.mean, data.card.std)
        self.confusion = np.zeros((data.num_classes, data.num_classes), dtype=np.int64)

    def __call__(self, arrays: ArrayRecord) -> dict[str, float]:
        """Return the measures of the model that holds ``arrays``, by column of ``rounds.csv``.

        Raises
        ------
        NonFinitePredictionsError
            A probability is not finite.
        """
        model = model_of(self.config, self.data, arrays)
        test, precision = self.data.test, self.config.train.precision
        predictions = predict(model, test.images, self.normalisation, self.device, precision)
        probabilities = predictions.probabilities
        if wrong := int((~np.isfinite(probabilities)).any(axis=1).sum()):
            raise NonFinitePredictionsError(
                f"the global model predicts NaN for {wrong} of {len(probabilities)} test images"
            )
        self.confusion = confusion_matrix(
            test.labels, probabilities.argmax(axis=1), labels=np.arange(self.data.num_classes)
        )
        return measure_row(probabilities, test.labels, self.data.rare_labels)


def clients_measures(
    clients: ClientGrid, label_round: int, server_round: int, arrays: ArrayRecord, timeout: float
) -> dict[str, float]:
    """Return the mean accuracy and loss of the clients' own test images, weighted by their number.

    NaN where no client that answered has any, or none answered: a run does without these measures.
    """
    request = {records.SERVER_ROUND: server_round}
    if label_round:
        request[records.LABEL_ROUND] = label_round
    keys = (records.ACCURACY, records.LOSS)
    answers: dict[str, MetricRecord | None] = {}
    with suppress(AllClientsFailedError):  # each failure was told
        answers, _ = ask(clients, records.EVALUATE, request, arrays, timeout)
    measured = [answer for answer in answers.values() if answer and answer[records.NUM_EXAMPLES]]
    if not measured:
        return {f"client_{key}": math.nan for key in keys}
    weights = [answer[records.NUM_EXAMPLES] for answer in measured]
    return {
        f"client_{key}": float(np.average([answer[key] for answer in measured], weights=weights))
        for key in keys
    }
