"""What can go wrong in a run, said so that a reader knows what to change."""


class RareflError(Exception):
    """Anything that a user of rarefl can cause or cure."""


class ConfigError(RareflError):
    """The run config or a node config is wrong."""


class NodesMissingError(RareflError):
    """The clients that are connected are not the ones that the run needs."""


class SourceMismatchError(RareflError):
    """A client runs other source files than the server."""


class DeadWorkerError(RareflError):
    """A Ray worker died; Flower would go on with a pool of workers that loses clients."""


class LabelsLostError(RareflError):
    """A client has fewer labels than it told before."""


class AllClientsFailedError(RareflError):
    """No client answered a request with anything usable."""


class RunFolderError(RareflError):
    """The folder of a run's results cannot be used."""
