"""The seed of Keras, also of a gang that was given none."""

from __future__ import annotations

from zlib import crc32

from .. import _state
from .._cluster import InstanceInfo


def seed_ranks(info: InstanceInfo, seed: int | None, together: bool) -> None:
    """Seed the random numbers of Keras, and of what it computes with.

    Args:
        info: this worker's place.
        seed: the seed that was given.
        together: whether all ranks compute on one model, and need a common seed where none was given.
    """
    if seed is None and together:
        seed = _shared_seed(info)
    if seed is not None:
        import keras

        keras.utils.set_random_seed(seed)


def _shared_seed(info: InstanceInfo) -> int:
    """A seed that all ranks know without a word between them, new for each gang.

    Ranks must draw the same random numbers, or they would start from different weights. A task that one of them ran
    alone may have drawn some, or have set a seed, so each gang begins anew.
    """
    return crc32(f"{info.job_id}/{info.generation}/{_state.attempt}".encode())
