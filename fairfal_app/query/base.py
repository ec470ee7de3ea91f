"""What a query strategy is given, what it answers, and the contract between the two."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from fairfal_app.query.errors import (
    MissingLocalModelError,
    QueryContractError,
    QueryInputError,
    QueryOptionError,
)
from fedraw.errors import OptionError
from fedraw.options import check_options
from learning.predict import Predictions

QueryModel = Literal["global", "local"]
QueryModelRule = Literal["adaptive", "global", "local", "opposite"]
"""How a client's query model is chosen; see ``scalars.choose_query_model``."""

# Softmax in single precision may leave [0, 1] by so much.
_PROBABILITY_SLACK = 1e-6


@dataclass(frozen=True, eq=False)
class QueryInput:
    """Predictions of one client's images at one query.

    U is the number of pool images, L of labelled ones, C of classes, D of features. ``pool_*`` are the
    unlabelled images in pool order, ``labelled_*`` the labelled ones, each seen by the global and by the
    local-only model (None where no local-only model was trained); features of the two models are not
    comparable. ``labels`` are the true labels of the labelled set, int64 (L,), ``query_model`` is the model
    whose predictions are the scores, ``gamma_mean`` the mean of the clients' gammas (None if not known).
    """

    pool_global: Predictions
    pool_local: Predictions | None
    labelled_global: Predictions
    labelled_local: Predictions | None
    labels: np.ndarray
    query_model: QueryModel
    gamma_mean: float | None = None

    @property
    def pool_size(self) -> int:
        """U, the number of unlabelled images."""
        return len(self.pool_global.probabilities)

    @property
    def num_classes(self) -> int:
        """C, all classes of the task, present or not."""
        return int(self.pool_global.probabilities.shape[1])

    @property
    def scores(self) -> Predictions:
        """The query model's predictions on the pool; raises MissingLocalModelError."""
        if self.query_model == "global":
            return self.pool_global
        return self.local_pool("the query model 'local'")

    def local_pool(self, reader: str) -> Predictions:
        """Return the local-only model's predictions on the pool; raises MissingLocalModelError."""
        if self.pool_local is None:
            raise MissingLocalModelError("pool_local", reader)
        return self.pool_local

    def local_labelled(self, reader: str) -> Predictions:
        """Return the local-only model's predictions on the labelled set; raises MissingLocalModelError."""
        if self.labelled_local is None:
            raise MissingLocalModelError("labelled_local", reader)
        return self.labelled_local


@dataclass(frozen=True, eq=False)
class Audit:
    """How FairFAL came to its selection. Positions are positions in the pool; it never leaves the client.

    ``buckets``, ``quotas`` and ``picks`` have one entry a bucket: its members by falling uncertainty, the
    number to take, and the picks in the order in which they were made.
    """

    buckets: tuple[np.ndarray, ...]
    quotas: tuple[int, ...]
    picks: tuple[np.ndarray, ...]


@dataclass(frozen=True, eq=False)
class Selection:
    """The images to label: int64 positions in the pool, ascending."""

    positions: np.ndarray
    audit: Audit | None = None


@dataclass(frozen=True)
class QueryOptions:
    """What a run config can set for a query strategy: nothing, unless a subclass has options."""

    def check(self) -> None:
        """Raise OptionError where options that are each in range do not go together."""


class QueryStrategy(ABC):
    """Chooses images of the pool; a pure function of its inputs, the budget and the generator.

    A new strategy is one file with a subclass and one line in ``registry.QUERY_STRATEGIES``; the run config,
    the reference and the conformance tests find it there. The first line of its docstring is its help. Ties
    go to the lower position. Call it through ``select`` below, which checks both sides: ``budget`` is then
    below the pool's size.

    Attributes
    ----------
    paper
        Where it is described, such as "arXiv 2603.10341"; a word for it where there is nothing to cite.
    Options
        Subclass of ``QueryOptions``, a frozen dataclass of fields made by ``fedraw.options.option``: its keys
        of the run config's table ``query``, with underscores.
    default_model
        The rule that chooses the query model unless ``query.model`` names one.
    needs_predictions
        Whether it looks at predictions at all; without them no model has to look at the pool.
    needs_labels
        Whether it needs a labelled set; with an empty one the query is a random one.
    name
        What the registry calls it; the class's name unless it was made by name.
    """

    paper: ClassVar[str] = ""
    Options: ClassVar[type[QueryOptions]] = QueryOptions
    default_model: ClassVar[QueryModelRule] = "global"
    needs_predictions: ClassVar[bool] = True
    needs_labels: ClassVar[bool] = False
    name: str

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Let the class's name stand until the registry gives one."""
        super().__init_subclass__(**keywords)
        cls.name = cls.__dict__.get("name", cls.__name__)

    def __init__(self, options: QueryOptions | None = None) -> None:
        """Take options, the defaults if there are none; raises QueryOptionError."""
        chosen: Any = self.Options() if options is None else options
        self.options = chosen
        try:
            check_options(chosen)
        except OptionError as error:
            raise QueryOptionError(str(error)) from None

    @property
    def needs_local_model(self) -> bool:
        """Whether it reads the local-only model even when the query model is the global one."""
        return False

    @abstractmethod
    def select(self, inputs: QueryInput, budget: int, rng: np.random.Generator) -> np.ndarray | Selection:
        """Return ``budget`` distinct positions of the pool, in any order, alone or with an audit."""


def select(strategy: QueryStrategy, inputs: QueryInput, budget: int, rng: np.random.Generator) -> Selection:
    """Run a query under the contract: exactly min(budget, pool size) distinct positions come back.

    An empty pool gives an empty selection, a pool no larger than the budget is taken whole, and a
    strategy that needs labels becomes a random query when there are none; the strategy is not asked then.

    Raises
    ------
    QueryInputError
        The budget is below 1; shapes disagree; a prediction is not finite; a label is out of range.
    MissingLocalModelError
        The strategy reads the local-only model and ``inputs`` has none.
    QueryContractError
        The strategy answered with something else than ``budget`` distinct positions of the pool.
    """
    if budget < 1:
        raise QueryInputError(f"budget = {budget} is not allowed: a query asks for at least 1 image")
    check_inputs(inputs)
    size = inputs.pool_size
    if size <= budget:
        return Selection(np.arange(size, dtype=np.int64))
    if strategy.needs_labels and len(inputs.labels) == 0:
        return Selection(np.sort(random_positions(size, budget, rng)))
    answer = strategy.select(inputs, budget, rng)
    selection = answer if isinstance(answer, Selection) else Selection(answer)
    positions = np.asarray(selection.positions)
    _check_positions(strategy.name, positions, budget, size)
    return Selection(np.sort(positions.astype(np.int64)), selection.audit)


def random_positions(size: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return ``count`` distinct positions below ``size``, uniformly drawn."""
    return rng.choice(size, size=count, replace=False)


def check_inputs(inputs: QueryInput) -> None:
    """Check shapes and values of everything that a query is given; raises QueryInputError."""
    labels = np.asarray(inputs.labels)
    check_predictions("pool_global", inputs.pool_global)
    pool, classes = inputs.pool_size, inputs.num_classes
    check_labels(labels, classes)
    check_predictions("labelled_global", inputs.labelled_global, len(labels), classes)
    if inputs.pool_local is not None:
        check_predictions("pool_local", inputs.pool_local, pool, classes)
    if inputs.labelled_local is not None:
        check_predictions("labelled_local", inputs.labelled_local, len(labels), classes)
    for model, unlabelled, labelled in (
        ("global", inputs.pool_global, inputs.labelled_global),
        ("local", inputs.pool_local, inputs.labelled_local),
    ):
        if unlabelled is None or labelled is None:
            continue
        widths = unlabelled.features.shape[1], labelled.features.shape[1]
        if widths[0] != widths[1]:
            raise QueryInputError(
                f"features of pool_{model} and labelled_{model} have {widths[0]} and {widths[1]} columns: "
                "both must come from the same model"
            )
    if inputs.query_model not in ("global", "local"):
        raise QueryInputError(f"query_model = {inputs.query_model!r} is not allowed: use global or local")
    if inputs.gamma_mean is not None and not 0 <= inputs.gamma_mean <= 1:
        raise QueryInputError(f"gamma_mean = {inputs.gamma_mean} is not allowed: it lies from 0 to 1")


def check_labels(labels: np.ndarray, num_classes: int) -> None:
    """Check that labels are whole numbers from 0 to C - 1, shape (L,); raises QueryInputError."""
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise QueryInputError(
            f"labels have shape {labels.shape} and type {labels.dtype}: whole numbers, (L,), are needed"
        )
    wrong = np.flatnonzero((labels < 0) | (labels >= num_classes))
    if len(wrong):
        raise QueryInputError(
            f"labels[{wrong[0]}] = {labels[wrong[0]]} is not allowed: with {num_classes} classes labels go "
            f"from 0 to {num_classes - 1}"
        )


def check_predictions(
    name: str, predictions: Predictions, rows: int | None = None, num_classes: int | None = None
) -> None:
    """Check the shapes, finiteness and range of predictions called ``name``; raises QueryInputError."""
    probabilities, features = predictions.probabilities, predictions.features
    for part, values in (("probabilities", probabilities), ("features", features)):
        if values.ndim != 2:
            raise QueryInputError(f"{name}.{part} has shape {values.shape}: (images, columns) is needed")
    expected = len(probabilities) if rows is None else rows
    if len(probabilities) != expected or len(features) != expected:
        raise QueryInputError(
            f"{name} has {len(probabilities)} rows of probabilities and {len(features)} of features: "
            f"{expected} images are expected"
        )
    columns = probabilities.shape[1]
    if columns < 1 or (num_classes is not None and columns != num_classes):
        raise QueryInputError(
            f"{name}.probabilities has {columns} classes: "
            + ("at least 1 is needed" if num_classes is None else f"{num_classes} are expected")
        )
    for part, values in (("probabilities", probabilities), ("features", features)):
        if not np.isfinite(values).all():
            row, column = np.argwhere(~np.isfinite(values))[0]
            raise QueryInputError(
                f"{name}.{part}[{row}, {column}] = {values[row, column]} is not finite: the model "
                "diverged or an image holds such a value; no query can be made from it"
            )
    if probabilities.size and not (
        probabilities.min() >= -_PROBABILITY_SLACK and probabilities.max() <= 1 + _PROBABILITY_SLACK
    ):
        raise QueryInputError(
            f"{name}.probabilities range from {probabilities.min()} to {probabilities.max()}: they "
            "must lie from 0 to 1 (were logits given?)"
        )


def _check_positions(strategy: str, positions: np.ndarray, budget: int, size: int) -> None:
    """Check a strategy's answer; raises QueryContractError."""
    if positions.ndim != 1 or not np.issubdtype(positions.dtype, np.integer):
        raise QueryContractError(
            strategy,
            f"answered with an array of shape {positions.shape} and type {positions.dtype}, not positions",
        )
    if len(positions) != budget:
        raise QueryContractError(strategy, f"chose {len(positions)} images where {budget} were asked for")
    outside = positions[(positions < 0) | (positions >= size)]
    if len(outside):
        raise QueryContractError(strategy, f"chose position {outside[0]} of a pool of {size} images")
    distinct, counts = np.unique(positions, return_counts=True)
    if len(distinct) != budget:
        raise QueryContractError(strategy, f"chose position {distinct[counts > 1][0]} more than once")
