"""Which client holds which labels, how rare that makes it, and its weight (FedRAW, arXiv 2609.07192).

Pure functions of arrays, and the server's registry of what it knows. Coverage is one bit a label and a
client: "holds at least so many examples of it"; counts never leave a client.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

LOGGER = logging.getLogger("flwr.fedraw")

Reduction = Literal["mean", "max"]


def coverage_bits(counts: Sequence[int] | np.ndarray, min_label_count: int = 1) -> list[int]:
    """Return the coverage of one client, (C,) zeros and ones, from its examples of each label."""
    return [int(count >= min_label_count) for count in counts]


def label_rarity(coverage: np.ndarray) -> np.ndarray:
    """Return the rarity of each label over the clients that are known.

    ``r_c = (1/cov_c - 1/cov_max) / (1/cov_min - 1/cov_max)`` with ``cov_c`` the share of clients that hold
    label c: 0 for the most covered label, 1 for the least covered.

    Parameters
    ----------
    coverage : (n, C) bool
        Coverage of n known clients.

    Returns
    -------
    (C,) float64 in [0, 1]
        All 0 when coverage is even. A label that nobody holds is left out of the scale and has 0.
    """
    share = coverage.mean(axis=0) if len(coverage) else np.zeros(coverage.shape[1])
    held = share > 0
    rarity = np.zeros(coverage.shape[1])
    if not held.any():
        return rarity
    scarcity = 1.0 / share[held]
    spread = scarcity.max() - scarcity.min()
    if spread > 0:
        rarity[held] = (scarcity - scarcity.min()) / spread
    return rarity


def client_rarity(coverage: np.ndarray, rarity: np.ndarray, reduction: Reduction = "mean") -> np.ndarray:
    """Return the rarity of clients: mean or maximum of the rarity of the labels they hold.

    Parameters
    ----------
    coverage : (k, C) bool
        Coverage of the clients in question.
    rarity : (C,) float
        Rarity of each label.

    Returns
    -------
    (k,) float64 in [0, 1]
        A client without labels has 0.
    """
    if reduction == "max":
        return np.where(coverage, rarity, 0.0).max(axis=1, initial=0.0)
    return (coverage * rarity).sum(axis=1) / np.maximum(coverage.sum(axis=1), 1)


def rare_label_weights(base: np.ndarray, rarity: np.ndarray, strength: float) -> np.ndarray:
    """Return FedRAW's weights ``p_i = q_i (1 + lambda rho_i)``, normalised over the buffer.

    Two clients with the same q differ by a factor of at most ``1 + lambda``, which is what keeps FedBuff's
    argument of convergence.

    Parameters
    ----------
    base : (k,) float
        q, not negative, not all 0: the weights without rarity.
    rarity : (k,) float in [0, 1]
        rho, the rarity of each entry's client.
    strength : float
        lambda, not negative; 0 leaves q.
    """
    weights = base * (1.0 + strength * rarity)
    return weights / weights.sum()


def coverage_from_update(weight: np.ndarray, bias: np.ndarray | None, threshold: float = 0.1) -> np.ndarray:
    """Infer which labels a client holds from the change of its classifier's last layer.

    In a softmax classifier a label that is absent from the local data only ever has its logit pushed down:
    its bias falls, and its weights move against features that are not negative (after a ReLU). A label that
    is present has examples that pull it up, so its bias rises or a part of its weights does.

    Parameters
    ----------
    weight : (C, D) float
        Change of the last layer's weights.
    bias : (C,) float or None
        Change of its bias.
    threshold : float
        Least share of the upward movement in a row's movement that counts as present.

    Returns
    -------
    (C,) bool
    """
    movement = np.abs(weight).sum(axis=1)
    upward = np.maximum(weight, 0.0).sum(axis=1) / np.where(movement > 0, movement, 1.0)
    present: np.ndarray = upward > threshold
    return present if bias is None else present | (bias > 0)


class LabelCoverage:
    """The server's registry: the latest known coverage of each site."""

    def __init__(self, known: Mapping[str, Sequence[int]] | None = None) -> None:
        self._bits: dict[str, tuple[int, ...]] = {}
        self._rarity: np.ndarray | None = None
        self._rare: dict[float, frozenset[str]] = {}
        self._warned: set[str] = set()
        for site, bits in (known or {}).items():
            self.update(site, bits)

    def __contains__(self, site: str) -> bool:
        return site in self._bits

    def bits(self, site: str) -> tuple[int, ...]:
        """Return what is known of a site."""
        return self._bits[site]

    def update(self, site: str, bits: Any) -> None:
        """Take a site's latest coverage; what is no list of bits is ignored, with one warning."""
        usable = (
            isinstance(bits, Sequence | np.ndarray) and len(bits) > 0 and all(bit in (0, 1) for bit in bits)
        )
        length = len(next(iter(self._bits.values()))) if self._bits else None
        if not usable or (length is not None and len(bits) != length):
            self._warn(
                site,
                f"label coverage of site '{site}' is {bits!r}; expected {length or 'some'} zeros and ones",
            )
            return
        latest = tuple(int(bit) for bit in bits)
        if self._bits.get(site) != latest:
            self._bits[site] = latest
            self._forget_derived()

    def _forget_derived(self) -> None:
        self._rarity = None
        self._rare = {}

    def _warn(self, key: str, text: str) -> None:
        if key not in self._warned:
            self._warned.add(key)
            LOGGER.warning(text)

    def _label_rarity(self) -> np.ndarray:
        if self._rarity is None:
            self._rarity = label_rarity(
                np.array([self._bits[site] for site in sorted(self._bits)], dtype=bool)
            )
        return self._rarity

    def rarity(self, sites: Sequence[str], reduction: Reduction = "mean") -> np.ndarray:
        """Return the rarity of each site, (k,); a site of unknown coverage has 0, with one warning."""
        result = np.zeros(len(sites))
        known = [i for i, site in enumerate(sites) if site in self._bits]
        if len(known) < len(sites):
            unknown = next(site for site in sites if site not in self._bits)
            self._warn(
                "",
                f"the label coverage of site '{unknown}' is not known; unknown sites have no rarity weight",
            )
        if known:
            coverage = np.array([self._bits[sites[i]] for i in known], dtype=bool)
            result[known] = client_rarity(coverage, self._label_rarity(), reduction)
        return result

    def rare_sites(self, least: float = 0.5) -> frozenset[str]:
        """Return the sites that hold a rare label: one of rarity ``least`` or more."""
        if least not in self._rare:
            rare = self._label_rarity() >= least if self._bits else np.zeros(0, dtype=bool)
            self._rare[least] = frozenset(
                site for site, bits in self._bits.items() if np.any(rare & np.array(bits, dtype=bool))
            )
        return self._rare[least]

    def state(self) -> dict[str, list[int]]:
        """Return the registry as JSON."""
        return {site: list(bits) for site, bits in sorted(self._bits.items())}

    def restore(self, state: Mapping[str, Iterable[int]]) -> None:
        """Go back to a state."""
        self._bits = {site: tuple(bits) for site, bits in state.items()}
        self._forget_derived()
