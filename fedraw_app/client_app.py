"""FedRAW's ClientApp: train on all images of this client, whose labels are known."""

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from federation import client as handlers
from federation.client import Client

app = ClientApp()


@app.query("hello")
def hello(message: Message, context: Context) -> Message:
    """Answer who this client is."""
    client = Client.of(context)
    return handlers.hello(message, client, client.data.train.labels[client.pool])


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train on all images."""
    client = Client.of(context)
    return handlers.train(message, client, client.pool, client.data.train.labels[client.pool])


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Evaluate on this client's part of the test images."""
    return handlers.evaluate(message, Client.of(context))
