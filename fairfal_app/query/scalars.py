"""The scalars behind FairFAL's choice of a query model (FairFAL, arXiv 2603.10341): gamma_k, d_k and s_k.

gamma_k says how evenly the global model treats the labels that the
client knows; d_k how far the global and the local-only model disagree on the labels' prior.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fairfal_app.query.base import QueryModel, QueryModelRule, check_labels, check_predictions
from fairfal_app.query.errors import QueryInputError, QueryOptionError
from learning.predict import Predictions


@dataclass(frozen=True)
class ClientScalars:
    """gamma_k and d_k of one client; ``discrepancy`` is None where no local-only model was given."""

    gamma: float
    discrepancy: float | None


def balanced_prior(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return a model's mean prediction over the labelled set with every present class weighed alike, (C,).

    pi_j = mean over c in C+ of the mean of p(x; w_j) over labelled x of class c. It is the expectation of
    the paper's resampling to equal class counts, without its noise. Raises QueryInputError on an empty
    set.
    """
    present = np.unique(labels)
    if len(present) == 0:
        raise QueryInputError("the labelled set is empty: the balanced prior needs at least one label")
    means = [probabilities[labels == label].mean(axis=0) for label in present]
    return np.mean(means, axis=0)


def gamma(prior_global: np.ndarray, labels: np.ndarray) -> float:
    """Return gamma_k = min / max of the global model's prior over the classes among the client's labels.

    It lies in [0, 1]; 1 with a single labelled class, 0 where a prior underflows. Raises QueryInputError
    without labelled classes.
    """
    classes = np.unique(labels)
    if len(classes) == 0:
        raise QueryInputError("the labelled set is empty: gamma needs at least one label")
    if len(classes) == 1:
        return 1.0
    known = prior_global[classes]
    return float(known.min() / known.max()) if known.min() > 0 else 0.0


def discrepancy(prior_global: np.ndarray, prior_local: np.ndarray) -> float:
    """Return d_k = (1/C) sum over all C classes of |pi_g - pi_l| / (pi_g + pi_l), in [0, 1]; 0/0 counts 0."""
    total = prior_global + prior_local
    terms = np.divide(np.abs(prior_global - prior_local), total, out=np.zeros_like(total), where=total > 0)
    return float(terms.mean())


def mean_gamma(gammas: Iterable[float]) -> float:
    """Return the unweighted mean of the gammas of the clients that report one; 1.0 if none does.

    Clients without labels have none. The sum is exact, so the clients' order is irrelevant.
    """
    reported = list(gammas)
    if not all(0 <= value <= 1 for value in reported):
        raise QueryInputError(f"gammas {reported} are not allowed: each lies from 0 to 1")
    return math.fsum(reported) / len(reported) if reported else 1.0


def model_score(discrepancy: float, gamma_mean: float) -> float:
    """Return s_k = 1 - (d_k + mean gamma) / 2, in [0, 1]."""
    return 1 - (discrepancy + gamma_mean) / 2


def choose_query_model(rule: QueryModelRule, score: float | None, delta: float = 0.75) -> QueryModel:
    """Return the query model under a rule: ``adaptive`` takes the global model where s_k > delta, strictly.

    ``opposite`` takes the other one, ``global`` and ``local`` are fixed and need no score. Raises
    QueryOptionError on another rule and QueryInputError on a missing score or one that is not a number.
    """
    if rule == "global":
        return "global"
    if rule == "local":
        return "local"
    if rule not in ("adaptive", "opposite"):
        raise QueryOptionError(
            f"query model rule {rule!r} is not allowed: use adaptive, global, local or opposite"
        )
    if score is None or not math.isfinite(score):
        raise QueryInputError(
            f"s = {score} is not allowed: the rule {rule!r} compares it with delta = {delta}"
        )
    return "global" if (score > delta) == (rule == "adaptive") else "local"


def client_scalars(
    labelled_global: Predictions, labelled_local: Predictions | None, labels: np.ndarray
) -> ClientScalars:
    """Return gamma_k and d_k from both models' predictions on the labelled set; raises QueryInputError."""
    check_predictions("labelled_global", labelled_global, len(labels))
    num_classes = labelled_global.probabilities.shape[1]
    check_labels(labels, num_classes)
    prior_global = balanced_prior(labelled_global.probabilities, labels)
    if labelled_local is None:
        return ClientScalars(gamma(prior_global, labels), None)
    check_predictions("labelled_local", labelled_local, len(labels), num_classes)
    prior_local = balanced_prior(labelled_local.probabilities, labels)
    return ClientScalars(gamma(prior_global, labels), discrepancy(prior_global, prior_local))
