"""Keras's seed, also for a gang that was given none."""

from __future__ import annotations

from zlib import crc32

from .._core import state
from .._libraries import seeds
from .._sky.cluster import InstanceInfo


def seed_ranks(info: InstanceInfo, seed: int | None, together: bool) -> None:
    """Seed the random numbers of Keras and its backend.

    Args:
        info: this worker's place.
        seed: the user's seed, or None.
        together: whether all ranks compute on one model, and so need a common seed if none was
            given.
    """
    if seed is None and together:
        seed = _shared_seed(info)
    if seed is not None:
        seeds.begin(seed)


def _shared_seed(info: InstanceInfo) -> int:
    """Return a seed that all ranks derive without communication, and that differs for each gang.

    Ranks must draw the same random numbers, or they would start from different weights. An earlier
    task on a single worker may have drawn some, or have set a seed, so each gang is seeded again.
    """
    return crc32(f"{info.job_id}/{info.generation}/{state.attempt}".encode())
