"""FairFAL's ServerApp: label rounds of querying and training until the labelling budget is spent."""

from flwr.serverapp import Grid

from datasets.budget import budget_per_client
from datasets.federated import federate
from fairfal_app.config import FairFALConfig
from fairfal_app.label_rounds import LabelRounds
from fairfal_app.labels_held import check_labels
from federation.client import data_spec
from federation.messages.hello import connect
from federation.runs.progress import logger
from federation.runs.resume import open_run
from fedraw_app.options import check_files, check_rare_labels


def run(grid: Grid, config: FairFALConfig) -> None:
    """Run federated active learning (FairFAL, arXiv 2603.10341).

    Raises
    ------
    RareflError, DataError
        Whatever stops the run; what was done until then stays in the run folder.
    """
    data = federate(data_spec(config))
    check_files(config)
    check_rare_labels(config, data.rare_labels)
    budget = budget_per_client(config.query.label_ratio, len(data.train_ids), config.data.clients)
    label = f"{config.app}-{config.data.name}-{config.query.name}-seed{config.seed}"
    folder, checkpoint = open_run(config, label)
    rounds: LabelRounds | None = None
    with folder.told_if_failed(lambda: rounds.summary() if rounds else {}):
        clients, federation = connect(grid, config, data.num_classes, folder.key)
        if checkpoint is not None:
            check_labels(checkpoint, federation, folder.key)
        logger.info("each client buys %d labels in a label round", budget)
        rounds = LabelRounds(clients, config, data, folder, federation, budget)
        rounds.run(checkpoint)
