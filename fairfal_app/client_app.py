"""FairFAL's ClientApp: train on the labelled images, and choose which images are labelled next."""

from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fairfal_app.labelling import Labelling
from federation import client as handlers
from federation import records
from federation.client import Client

app = ClientApp()


@app.query("hello")
def hello(message: Message, context: Context) -> Message:
    """Answer who this client is."""
    labelling = Labelling(message, context)
    _, labels = labelling.labelled()
    return handlers.hello(message, labelling.client, labels)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train on the labelled images."""
    labelling = Labelling(message, context)
    return handlers.train(message, labelling.client, *labelling.labelled(_label_round(message)))


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Evaluate on this client's part of the test images."""
    return handlers.evaluate(message, Client.of(context))


@app.query("estimate")
def estimate(message: Message, context: Context) -> Message:
    """Train the local-only model and answer with gamma_k and d_k, as far as this client has them."""
    labelling = Labelling(message, context)
    label_round = _label_round(message)
    scalars = labelling.estimate(label_round, message.content.array_records[records.ARRAYS])
    metrics: records.Metrics = {}
    if scalars is not None:
        metrics[records.GAMMA] = scalars.gamma
        if scalars.discrepancy is not None:
            metrics[records.DISCREPANCY] = scalars.discrepancy
    return Message(RecordDict({records.METRICS: MetricRecord(metrics)}), reply_to=message)


@app.query("select")
def select(message: Message, context: Context) -> Message:
    """Choose images, have them labelled and answer with counts."""
    labelling = Labelling(message, context)
    request = message.content.config_records[records.CONFIG]
    metrics = labelling.select(
        _label_round(message),
        int(request[records.BUDGET]),  # type: ignore[arg-type]
        message.content.array_records.get(records.ARRAYS),
        request.get(records.GAMMA_MEAN),  # type: ignore[arg-type]
    )
    return Message(RecordDict({records.METRICS: metrics}), reply_to=message)


def _label_round(message: Message) -> int:
    return int(message.content.config_records[records.CONFIG][records.LABEL_ROUND])  # type: ignore[arg-type]
