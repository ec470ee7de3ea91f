"""Every key that travels between the server and its clients.

Model arrays travel, and scalars and label-coverage bits. No image, no label of a sample and no sample id is
ever part of a message. ``REQUESTS`` and ``REPLIES`` list what each kind of message may carry; a test compares
the messages of real runs with them.
"""

from dataclasses import dataclass, field

# Values of a MetricRecord.
Metrics = dict[str, int | float | list[int] | list[float]]

# Message types. Flower allows "train", "evaluate" and "query.<name>".
TRAIN = "train"
EVALUATE = "evaluate"
HELLO = "query.hello"
ESTIMATE = "query.estimate"
SELECT = "query.select"

# Records of a message.
ARRAYS = "arrays"
CONFIG = "config"
METRICS = "metrics"

# Keys of requests.
RUN = "run"  # random name of the run, by which a client finds its labels of it
LABEL_ROUND = "label-round"
SERVER_ROUND = "server-round"  # Flower's own key
JOB = "job"  # count of a client's own jobs, sent by asynchronous strategies
PROXIMAL_MU = "proximal-mu"  # Flower's own key, sent by FedProx
GAMMA_MEAN = "gamma-mean"

# Keys of replies.
SITE = "site"
DEVICE = "device"
FINGERPRINT = "fingerprint"
SOURCE = "source"
PARTITION = "partition-id"
POOL_SIZE = "pool-size"
LABEL_COVERAGE = "label-coverage"
NUM_EXAMPLES = "num-examples"
NUM_LABELLED = "num-labelled"
TRAIN_LOSS = "train-loss"
LOSS = "loss"
ACCURACY = "accuracy"
GAMMA = "gamma"
DISCREPANCY = "d"
MODEL_SCORE = "s"
GLOBAL_MODEL = "global-model"
BUDGET = "budget"
CLASS_COUNTS = "class-counts"


@dataclass(frozen=True)
class Contents:
    """Keys that one kind of message may carry, by record."""

    arrays: bool = False
    config: frozenset[str] = frozenset()
    metrics: frozenset[str] = frozenset()
    simulation_metrics: frozenset[str] = field(default=frozenset())


REQUESTS: dict[str, Contents] = {
    HELLO: Contents(config=frozenset({RUN})),
    TRAIN: Contents(arrays=True, config=frozenset({RUN, LABEL_ROUND, SERVER_ROUND, JOB, PROXIMAL_MU})),
    EVALUATE: Contents(arrays=True, config=frozenset({RUN, LABEL_ROUND, SERVER_ROUND})),
    ESTIMATE: Contents(arrays=True, config=frozenset({RUN, LABEL_ROUND})),
    SELECT: Contents(arrays=True, config=frozenset({RUN, LABEL_ROUND, BUDGET, GAMMA_MEAN})),
}

# What a reply must hold besides arrays; replies to ``train`` follow Flower's own rules.
REQUIRED: dict[str, frozenset[str]] = {
    HELLO: frozenset({SITE, PARTITION, DEVICE, FINGERPRINT, SOURCE, POOL_SIZE, NUM_LABELLED, LABEL_COVERAGE}),
    EVALUATE: frozenset({NUM_EXAMPLES, LOSS, ACCURACY}),
    ESTIMATE: frozenset(),
    SELECT: frozenset({BUDGET, NUM_LABELLED, LABEL_COVERAGE}),
}

REPLIES: dict[str, Contents] = {
    HELLO: Contents(
        config=frozenset({SITE, PARTITION, DEVICE, FINGERPRINT, SOURCE}),
        metrics=frozenset({POOL_SIZE, NUM_LABELLED, LABEL_COVERAGE}),
    ),
    TRAIN: Contents(arrays=True, metrics=frozenset({NUM_EXAMPLES, TRAIN_LOSS, LABEL_COVERAGE})),
    EVALUATE: Contents(metrics=frozenset({NUM_EXAMPLES, LOSS, ACCURACY})),
    ESTIMATE: Contents(metrics=frozenset({GAMMA, DISCREPANCY})),
    SELECT: Contents(
        metrics=frozenset({BUDGET, NUM_LABELLED, LABEL_COVERAGE, MODEL_SCORE, GLOBAL_MODEL}),
        simulation_metrics=frozenset({CLASS_COUNTS}),
    ),
}
