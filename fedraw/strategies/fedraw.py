"""FedRAW: rare labels are not drowned by clients that are fast or many (arXiv 2609.07192)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Unpack, get_args

import numpy as np

from fedraw.aggregation import Arrays
from fedraw.errors import SettingError
from fedraw.label_coverage import Reduction, coverage_from_update, rare_label_weights
from fedraw.options import AsynchronousOptions, BufferedOptions, option
from fedraw.run.buffer import Entry, Keep
from fedraw.strategies.asynchronous import AsynchronousStrategy
from fedraw.strategies.settings import BufferedSettings

LabelSource = Literal["metrics", "updates"]


@dataclass(frozen=True)
class FedRAWOptions(BufferedOptions):
    """Options of FedRAW."""

    keep: str = option(
        "newest",
        "one buffer place a client (newest, freshest, or mean of its updates) or several (off)",
        choices=("newest", "freshest", "mean", "off"),
    )
    rarity: str = option(
        "max", "rarity of a client: mean or maximum of its labels'", choices=get_args(Reduction)
    )
    rarity_weight: float = option(
        6.0, "lambda; the rarest client weighs 1 + lambda times a common one", at_least=0
    )
    label_source: str = option(
        "metrics",
        "how the server learns which labels a client holds: clients report it (metrics), or updates show it",
        choices=get_args(LabelSource),
    )

    def settings(self, clients: int) -> dict[str, Any]:
        """Return the keyword arguments of the strategy; with ``updates`` it is told no coverage."""
        own = {
            "keep": self.keep,
            "rarity": self.rarity,
            "rarity_weight": self.rarity_weight,
            "label_source": self.label_source,
        }
        untold = {"label_coverage": None} if self.label_source == "updates" else {}
        return super().settings(clients) | own | untold


class FedRAW(AsynchronousStrategy):
    """FedBuff with one buffer place a client and more weight for clients with rare labels.

    Both act on the server alone; clients train as ever. With ``rarity_weight`` 0 and ``keep`` "off" it is
    FedBuff.

    Parameters
    ----------
    keep : str
        What a second update of a client in the buffer does to the first: ``newest`` takes its place,
        ``freshest`` takes it unless it is staler, ``mean`` is averaged into it, ``off`` has a place of its
        own. A version is made at ``buffer_size`` different clients.
    rarity_weight : float
        lambda: a client of rarity rho weighs ``1 + lambda rho`` times as much as one with common labels only.
    rarity : str
        rho of a client: ``mean`` or ``max`` of the rarity of the labels that it holds.
    label_source : str
        ``metrics``: clients report their label coverage. ``updates``: it is inferred from what their updates
        do to the classifier, and a label once seen at a client is kept, so clients need to report nothing.
    classifier : (str, str) or None
        Keys of weight (C, D) and bias (C,) of the last layer, for ``updates``; the bias may be "". None takes
        the last matrix of the model, and the vector of the same length after it.
    **settings
        See ``AsynchronousStrategy``.
    """

    paper: ClassVar[str] = "arXiv 2609.07192"
    Options: ClassVar[type[AsynchronousOptions]] = FedRAWOptions

    def __init__(
        self,
        *,
        keep: Keep = "newest",
        rarity_weight: float = 6.0,
        rarity: Reduction = "max",
        label_source: LabelSource = "metrics",
        classifier: tuple[str, str] | None = None,
        **settings: Unpack[BufferedSettings],
    ) -> None:
        super().__init__(**settings)
        for name, value, kind in (
            ("keep", keep, Keep),
            ("rarity", rarity, Reduction),
            ("label_source", label_source, LabelSource),
        ):
            if value not in get_args(kind):
                raise SettingError(f"{name} is {value!r}; it must be one of {get_args(kind)}")
        if not (rarity_weight >= 0 and math.isfinite(rarity_weight)):
            raise SettingError(f"rarity_weight is {rarity_weight}; it must be finite and not negative")
        self.keep = keep
        self.rarity_weight = rarity_weight
        self.rarity = rarity
        self.label_source = label_source
        self.classifier = classifier

    def received(self, entry: Entry, sent: Arrays) -> None:
        """Take the client's label coverage from its metrics, or from its update."""
        if self.label_source == "metrics":
            super().received(entry, sent)
        elif entry.deltas:
            weight, bias = self._last_layer(entry.deltas)
            present = coverage_from_update(weight, bias)
            if entry.site in self.coverage:
                present |= np.array(self.coverage.bits(entry.site), dtype=bool)
            self.coverage.update(entry.site, present.astype(int).tolist())

    def _last_layer(self, deltas: Arrays) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the change of weight and bias of the classifier."""
        if self.classifier is not None:
            weight_key, bias_key = self.classifier
            missing = [key for key in (weight_key, bias_key) if key and key not in deltas]
            if missing:
                raise SettingError(f"classifier names '{missing[0]}'; the model has {', '.join(deltas)}")
            return deltas[weight_key], deltas[bias_key] if bias_key else None
        keys = list(deltas)
        matrices = [i for i, key in enumerate(keys) if deltas[key].ndim == 2]
        if not matrices:
            raise SettingError(
                "label_source is 'updates' and the model has no matrix that could be a classifier; name its "
                "last layer in `classifier`"
            )
        weight = deltas[keys[matrices[-1]]]
        vectors = [deltas[key] for key in keys[matrices[-1] + 1 :] if deltas[key].shape == weight.shape[:1]]
        return weight, vectors[0] if vectors else None

    def weights(self, entries: Sequence[Entry], taus: Sequence[int]) -> np.ndarray:
        """Return ``q_i (1 + lambda rho_i)``, normalised."""
        base = self.base_weights(entries)
        if self.rarity_weight == 0:
            return base
        rarity = self.coverage.rarity([entry.site for entry in entries], self.rarity)
        return rare_label_weights(base, rarity, self.rarity_weight)
