"""FedRAW's ServerApp: one training with all labels known, by any strategy, synchronous or asynchronous."""

from flwr.serverapp import Grid

from datasets.federated import federate
from federation.client import data_spec
from federation.config.run_config import RunConfig
from federation.messages.hello import connect
from federation.runs.resume import open_run
from fedraw_app.options import check_files, check_rare_labels
from fedraw_app.training_run import TrainingRun


def run(grid: Grid, config: RunConfig) -> None:
    """Train and measure (FedRAW, arXiv 2609.07192).

    Raises
    ------
    RareflError, DataError, StrategyError
        Whatever stops the run; what was done until then stays in the run folder.
    """
    data = federate(data_spec(config))
    check_files(config)
    check_rare_labels(config, data.rare_labels)
    label = f"{config.app}-{config.data.name}-{config.strategy.name}-seed{config.seed}"
    folder, checkpoint = open_run(config, label)
    training: TrainingRun | None = None
    with folder.told_if_failed(lambda: training.summary() if training else {}):
        clients, federation = connect(grid, config, data.num_classes, folder.key)
        training = TrainingRun(clients, config, data, folder, federation)
        training.run(checkpoint)
