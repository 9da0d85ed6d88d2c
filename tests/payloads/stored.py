"""Payloads that give a large array to many calls."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import skyward as sky
from joblib import Parallel, delayed
from numpy.typing import NDArray
from skyward._core import state

Seen = tuple[int, float, int, int]
"""Rank, sum of a part, files that the worker wrote, and those of them that it received."""


def look(array: NDArray[np.float64], part: int) -> Seen:
    """A call."""
    total = float(array[part::16].sum())
    # So that no worker runs them all.
    time.sleep(0.05)
    store = state.worker.store
    return sky.instance_info().global_worker_index, total, store.written, store.received


def own() -> Seen:
    """What the caller's own worker has done."""
    return look(np.zeros(16), 0)


def table(size: int) -> NDArray[np.float64]:
    """A large array."""
    return np.arange(size, dtype=np.float64)


def submitted(size: int) -> list[Seen]:
    """Give an array to 16 calls."""
    array = table(size)
    futures = [sky.submit(look, array, part) for part in range(16)]
    return [*(future.result() for future in futures), own()]


def shared(size: int) -> list[Seen]:
    """The same by `sky.put`."""
    array = sky.put(table(size))
    futures = [sky.submit(look, array, part) for part in range(16)]
    return [*(future.result() for future in futures), own()]


def parallel(size: int) -> Sequence[Seen]:
    """The same by joblib."""
    array = table(size)
    found: list[Seen] = Parallel(n_jobs=-1, batch_size=1)(delayed(look)(array, part) for part in range(16))
    return [*found, own()]
