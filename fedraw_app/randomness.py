"""Generators for every random draw of a strategy, derived from the seed and the purpose of the draw.

A draw of one purpose changes nothing elsewhere, and the order in which clients work is irrelevant. The
package stands alone in a foreign app, so it derives its generators itself.
"""

import hashlib

import numpy as np


def generator(seed: int, purpose: str, *keys: int | str) -> np.random.Generator:
    """Return the generator of one purpose, such as ``(seed, "delay", site, job)``; the seed is >= 0."""
    words = [seed]
    for key in (purpose, *keys):
        digest = hashlib.sha256(f"{type(key).__name__}:{key}".encode()).digest()
        words += [int.from_bytes(digest[i : i + 4], "little") for i in range(0, 16, 4)]
    return np.random.default_rng(np.random.SeedSequence(words))
