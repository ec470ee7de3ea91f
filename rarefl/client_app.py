"""The ClientApp that pyproject.toml names: hands each message to the app that the run config chooses."""

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fairfal_app.client_app import app as fairfal_client
from fedraw_app.client_app import app as fedraw_client

CLIENT_APPS = {"fairfal": fairfal_client, "fedraw": fedraw_client}


class ClientAppByConfig(ClientApp):
    """A Flower App Bundle has one ClientApp; this one stands for all of ours."""

    def __call__(self, message: Message, context: Context) -> Message:
        """Answer a message by the app of this run."""
        return CLIENT_APPS[str(context.run_config["app"])](message, context)


app = ClientAppByConfig()
