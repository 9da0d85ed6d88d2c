# /// script
# requires-python = ">=3.10"
# dependencies = ["numpy"]
# ///
"""Estimates pi with joblib: plain code, whose parts run on all workers under `plugins::joblib()`."""

from typing import Any

import numpy as np
import skyward as sky
from joblib import Parallel, delayed, effective_n_jobs


def hits(seed: int, samples: int) -> tuple[int, int]:
    """One part: how many random points lie in the circle, and the rank of the worker that counted them."""
    points = np.random.default_rng(seed).random((samples, 2))
    return int(((points**2).sum(axis=1) < 1).sum()), sky.instance_info().rank


def estimate(parts: int, samples: int, jobs: int) -> dict[str, Any]:
    """Count in parts.

    Args:
        parts: how many.
        samples: random points of each part.
        jobs: parts that run at a time; -1: one on each worker of the pool.

    Returns:
        `pi`, `jobs` that ran at a time, and `ranks`, those of the workers that counted.
    """
    counted = Parallel(n_jobs=jobs)(delayed(hits)(seed, samples) for seed in range(parts))
    return {
        "pi": 4 * sum(count for count, _ in counted) / (parts * samples),
        "jobs": effective_n_jobs(jobs),
        "ranks": sorted({rank for _, rank in counted}),
    }
