"""FairFAL's query (FairFAL, arXiv 2603.10341): class-fair quotas, then uncertainty, then diversity.

The pool is split into buckets by pseudo-label, each bucket gets its share of the budget, the most uncertain
members of a bucket are kept (stage 1), and a k-center over gradient embeddings picks among them (stage 2).
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fairfal_app.query.base import Audit, QueryInput, QueryOptions, QueryStrategy, Selection
from fairfal_app.query.errors import QueryInputError
from fairfal_app.query.gradient import GradientEmbeddings, residuals
from fairfal_app.query.k_center import k_center
from fairfal_app.query.prototypes import pseudo_labels
from fairfal_app.query.quotas import class_quotas
from fairfal_app.query.uncertainty import UNCERTAINTIES, by_falling_uncertainty
from fedraw.errors import OptionError
from fedraw.options import option

# "auto" takes the local-only model's probabilities into the gradient embedding from this mean gamma on.
_AUTO_GAMMA = 0.5

_LARGEST_KAPPA = 1_000_000


@dataclass(frozen=True)
class FairFALOptions(QueryOptions):
    """Options of FairFAL; the defaults are the paper's."""

    prototypes: Literal["global", "local", "none"] = option(
        "global",
        "model whose features give the pseudo-labels; none: the pool is one bucket, without class fairness",
        choices=("global", "local", "none"),
    )
    uncertainty: Literal["entropy", "margin", "least-confidence"] = option(
        "entropy", "uncertainty by which candidates are kept", choices=tuple(UNCERTAINTIES)
    )
    kappa: float = option(
        4.0,
        f"candidates for each label of a quota, up to {_LARGEST_KAPPA:,}; 1 leaves the k-center no choice",
        at_least=1,
    )
    gradient_probabilities: Literal["global", "auto"] = option(
        "global",
        f"probabilities of the gradient embedding; auto: the local ones where mean gamma >= {_AUTO_GAMMA}",
        choices=("global", "auto"),
    )

    def check(self) -> None:
        """Refuse a kappa whose product with a quota is no number of candidates."""
        if self.kappa > _LARGEST_KAPPA:
            raise OptionError(
                "kappa",
                self.kappa,
                f"is not allowed: it must be at most {_LARGEST_KAPPA}, because kappa times a quota counts "
                "candidates, and no class has more",
            )


class FairFAL(QueryStrategy):
    """Class-fair quotas by pseudo-label, then the most uncertain of a class, then the most diverse of these.

    The query model, which its scalars choose, comes with ``QueryInput``.
    """

    paper = "arXiv 2603.10341"
    Options = FairFALOptions
    default_model = "adaptive"
    needs_labels = True
    options: FairFALOptions

    @property
    def needs_local_model(self) -> bool:
        """Whether an option may read the local-only model though the query model is the global one."""
        return self.options.prototypes == "local" or self.options.gradient_probabilities == "auto"

    def select(self, inputs: QueryInput, budget: int, rng: np.random.Generator) -> Selection:
        """Return the positions to label and how they came about; ``rng`` is not used."""
        bucket_of, anchor_bucket, count = self._assign(inputs)
        pool_probabilities, labelled_probabilities = self._gradient_probabilities(inputs)
        anchor_residuals = residuals(labelled_probabilities, inputs.labels)
        uncertainty = UNCERTAINTIES[self.options.uncertainty](inputs.scores.probabilities)
        buckets = _members(bucket_of, by_falling_uncertainty(uncertainty), count)
        quotas = class_quotas(np.array([len(members) for members in buckets]), budget).tolist()
        picks = []
        for bucket, (members, quota) in enumerate(zip(buckets, quotas, strict=True)):
            shortlist = members[: math.floor(self.options.kappa * quota)]
            candidates = GradientEmbeddings.of(
                inputs.pool_global.features[shortlist], residuals(pool_probabilities[shortlist])
            )
            same = anchor_bucket == bucket
            anchors = GradientEmbeddings.of(inputs.labelled_global.features[same], anchor_residuals[same])
            picks.append(shortlist[k_center(candidates, anchors, quota)])
        return Selection(np.concatenate(picks), Audit(tuple(buckets), tuple(quotas), tuple(picks)))

    def _assign(self, inputs: QueryInput) -> tuple[np.ndarray, np.ndarray, int]:
        """Return every pool image's bucket, every labelled image's bucket, and the number of buckets."""
        if self.options.prototypes == "none":
            return np.zeros(inputs.pool_size, np.int64), np.zeros(len(inputs.labels), np.int64), 1
        pool, labelled = inputs.pool_global, inputs.labelled_global
        if self.options.prototypes == "local":
            reader = "prototypes = 'local'"
            pool, labelled = inputs.local_pool(reader), inputs.local_labelled(reader)
        buckets = pseudo_labels(pool.features, labelled.features, inputs.labels, inputs.num_classes)
        return buckets, inputs.labels, inputs.num_classes

    def _gradient_probabilities(self, inputs: QueryInput) -> tuple[np.ndarray, np.ndarray]:
        """Return the probabilities of pool and labelled set that stand in the gradient embedding."""
        pool, labelled = inputs.pool_global, inputs.labelled_global
        if self.options.gradient_probabilities == "auto":
            if inputs.gamma_mean is None:
                raise QueryInputError("gamma_mean is missing: gradient_probabilities = 'auto' goes by it")
            if inputs.gamma_mean >= _AUTO_GAMMA:
                reader = f"gradient_probabilities = 'auto' at a mean gamma of {inputs.gamma_mean:g}"
                pool, labelled = inputs.local_pool(reader), inputs.local_labelled(reader)
        return pool.probabilities, labelled.probabilities


def _members(bucket_of: np.ndarray, order: np.ndarray, count: int) -> list[np.ndarray]:
    """Return the positions in each of ``count`` buckets, in the order in which ``order`` lists them."""
    grouped = order[np.argsort(bucket_of[order], kind="stable")]
    ends = np.cumsum(np.bincount(bucket_of, minlength=count))
    return np.split(grouped, ends[:-1])
