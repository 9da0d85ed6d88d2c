# /// script
# requires-python = ">=3.10"
# dependencies = ["numpy"]
# ///
"""Estimates pi with joblib. With `plugins::joblib()`, the parts run on all workers of the pool."""

from typing import Any

import numpy as np
import skyward as sky
from joblib import Parallel, delayed, effective_n_jobs


def hits(seed: int, samples: int) -> tuple[int, int]:
    """Count the random points inside the circle; return the count and this worker's rank."""
    points = np.random.default_rng(seed).random((samples, 2))
    return int(((points**2).sum(axis=1) < 1).sum()), sky.instance_info().rank


def estimate(parts: int, samples: int, jobs: int) -> dict[str, Any]:
    """Estimate pi from several parts.

    Args:
        parts: the number of parts.
        samples: random points per part.
        jobs: parts that run at a time; -1 for one on each worker of the pool.

    Returns:
        A dict of `pi`, the number of `jobs` that ran at a time, and the `ranks` of the workers that
        counted.
    """
    counted = Parallel(n_jobs=jobs)(delayed(hits)(seed, samples) for seed in range(parts))
    return {
        "pi": 4 * sum(count for count, _ in counted) / (parts * samples),
        "jobs": effective_n_jobs(jobs),
        "ranks": sorted({rank for _, rank in counted}),
    }
