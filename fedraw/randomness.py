"""Generators for every random draw of a strategy, derived from the seed and the purpose of the draw.

A draw of one purpose changes nothing elsewhere, and the order in which clients work is irrelevant. The
package stands alone in a foreign app, so it derives its generators itself.
"""

import hashlib
from collections.abc import Callable

import numpy as np

# Makes a generator when it is asked for one: most draws of a schedule are never needed.
GeneratorMaker = Callable[[], np.random.Generator]


def generator(seed: int, purpose: str, *keys: int | str) -> np.random.Generator:
    """Return the generator of one purpose, such as ``(seed, "delay", site, job)``; the seed is >= 0."""
    digest = hashlib.sha256(repr((purpose, *keys)).encode()).digest()
    return np.random.default_rng(np.random.SeedSequence([seed, int.from_bytes(digest, "little")]))
