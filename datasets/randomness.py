"""Generators for every random draw, derived from the run's seed and the purpose of the draw.

No generator is shared between two purposes and none is global, so that a new draw in one place changes
nothing elsewhere, and the order in which clients work is irrelevant.
"""

import hashlib

import numpy as np
import torch


def _words(key: int | str) -> list[int]:
    """Return 32-bit words that stand for a key; integers and strings never collide."""
    tagged = f"{type(key).__name__}:{key}".encode()
    digest = hashlib.sha256(tagged).digest()
    return [int.from_bytes(digest[i : i + 4], "little") for i in range(0, 16, 4)]


def seed_sequence(seed: int, purpose: str, *keys: int | str) -> np.random.SeedSequence:
    """Return the seed sequence of one purpose, such as ``("local training", label_round, round, site)``."""
    return np.random.SeedSequence([seed, *(word for key in (purpose, *keys) for word in _words(key))])


def draw_seed(seed: int, purpose: str, *keys: int | str) -> int:
    """Return a seed, below 2**32, for a library that takes nothing but a number."""
    return int(seed_sequence(seed, purpose, *keys).generate_state(1, np.uint32)[0])


def generator(seed: int, purpose: str, *keys: int | str) -> np.random.Generator:
    """Return the NumPy generator of one purpose; ``seed`` is not negative."""
    return np.random.default_rng(seed_sequence(seed, purpose, *keys))


def torch_generator(seed: int, purpose: str, *keys: int | str) -> torch.Generator:
    """Return the CPU torch generator of one purpose; ``seed`` is not negative."""
    state = seed_sequence(seed, purpose, *keys).generate_state(2, np.uint32)
    return torch.Generator().manual_seed(int(state[0]) << 31 ^ int(state[1]))
