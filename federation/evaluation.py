"""Evaluation of the global model on the server's test images."""

import numpy as np
import torch
from flwr.app import ArrayRecord
from sklearn.metrics import confusion_matrix

from datasets.federated import FederatedData
from federation.client import initial_model, load_record
from federation.config.run_config import RunConfig
from learning.device import pick_device
from learning.measure import Measures, measure
from learning.predict import predict
from learning.views import Normalisation


class ServerEvaluation:
    """Measures global models on the whole test split every ``evaluate.every`` rounds and in the last five.

    Attributes
    ----------
    confusion
        Test images by true label (rows) and predicted label (columns) of the model measured last, int64
        (C, C); zeros before.
    """

    LAST_ROUNDS = 5

    def __init__(self, config: RunConfig, data: FederatedData) -> None:
        self.config = config
        self.data = data
        self.device = pick_device()
        self.model = initial_model(config, data, label_round=0)
        self.normalisation = Normalisation(data.card.mean, data.card.std)
        self.confusion = np.zeros((data.num_classes, data.num_classes), dtype=np.int64)

    def due(self, server_round: int) -> bool:
        """Whether round ``server_round`` (from 1) is evaluated."""
        if server_round < 1:
            return False
        last = server_round > self.config.steps - self.LAST_ROUNDS
        return last or server_round % self.config.evaluate.every == 0

    def __call__(self, arrays: ArrayRecord) -> Measures:
        """Return the measures of the model that holds ``arrays``."""
        load_record(self.model, arrays)
        images: torch.Tensor = self.data.test.images
        predictions = predict(
            self.model, images, self.normalisation, self.device, self.config.train.precision
        )
        labels = self.data.test.labels
        self.confusion = confusion_matrix(
            labels, predictions.probabilities.argmax(axis=1), labels=np.arange(self.data.num_classes)
        )
        return measure(predictions.probabilities, labels, self.data.rare_labels)
