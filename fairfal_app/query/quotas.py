"""Class quotas of one query (FairFAL, arXiv 2603.10341)."""

import numpy as np


def class_quotas(bucket_sizes: np.ndarray, budget: int) -> np.ndarray:
    """Return how many images each bucket gives, int64 (C,), summing to min(budget, sum of sizes).

    Every class of the task gets budget // C, present or not, and the budget % C units left over go one
    each to the largest buckets (ties: lower class). What exceeds a bucket is dealt out one unit at a
    time, round and round in that same order, to the buckets that have room. With fewer units than classes
    the small buckets get none.
    """
    sizes = np.asarray(bucket_sizes, dtype=np.int64)
    base, remainder = divmod(min(budget, int(sizes.sum())), len(sizes))
    largest_first = np.argsort(-sizes, kind="stable")
    quotas = np.full(len(sizes), base, dtype=np.int64)
    quotas[largest_first[:remainder]] += 1
    excess = int(np.maximum(quotas - sizes, 0).sum())
    quotas = np.minimum(quotas, sizes)
    while excess > 0:
        roomy = largest_first[quotas[largest_first] < sizes[largest_first]][:excess]
        quotas[roomy] += 1
        excess -= len(roomy)
    return quotas
