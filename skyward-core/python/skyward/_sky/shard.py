"""Sharding: each worker's part of the data, computed without communication."""

from __future__ import annotations

import operator
from typing import Any, TypeVar, overload

from . import cluster, order, rows
from .parts import data_parts

T = TypeVar("T")


class _Head:
    """True if this worker has rank 0 in its task's world; may also be called."""

    def __bool__(self) -> bool:
        return cluster.is_head()

    def __call__(self) -> bool:
        """Return whether this worker has rank 0 in its task's world."""
        return cluster.is_head()

    def __eq__(self, other: object) -> bool:
        return bool(self) == other

    def __hash__(self) -> int:
        return hash(bool(self))

    def __repr__(self) -> str:
        return repr(bool(self))


is_head = _Head()
"""True on the worker of rank 0, and in a task that is no part of a broadcast.

`if sky.is_head:` and `if sky.is_head():` are the same.
"""


@overload
def shard(array: T, /, *, shuffle: bool = False, seed: int = 0, drop_last: bool = False) -> T: ...
@overload
def shard(*arrays: Any, shuffle: bool = False, seed: int = 0, drop_last: bool = False) -> tuple[Any, ...]: ...


def shard(*arrays: Any, shuffle: bool = False, seed: int = 0, drop_last: bool = False) -> Any:
    """Return this worker's part of the data, with the type that was given.

    Every worker must pass the same data. The parts are contiguous (in the shuffled order, with
    `shuffle`), contain each row exactly once, and differ in size by at most one. Each worker has a
    part of its own, unless Keras divides a model over the devices of several workers: those workers
    get the same part, because they compute on the same samples. Outside a pool, and in a task that
    is no part of a broadcast, the part is all of the data.

    Args:
        *arrays: data of equal length, whose rows stay aligned: list, tuple, str, bytes, memoryview,
            range, deque, `array.array`; NumPy, JAX and TensorFlow arrays and torch tensors of shape
            `(n, ...)`; data frames, series, tables and columns of pandas, polars and pyarrow with
            `n` rows; SciPy's sparse matrices of shape `(n, m)`; Hugging Face datasets; map-style
            datasets of torch, for which a `Subset` is returned. A dict is refused, because it may
            hold columns or entries.
        shuffle: put the rows in a random order first, which is the same on all workers. A range
            becomes a list.
        seed: selects the random order; an int of any size.
        drop_last: leave out the rows that do not divide evenly, so that all parts have the same
            size.

    Returns:
        The part, or for several arrays a tuple of parts, each with the type that was given.

    Raises:
        ValueError: the arrays have different lengths.
        TypeError: rows of the data cannot be selected. The message names its type and what to do.

    Example:
        images, labels = sky.shard(images, labels, shuffle=True, seed=epoch)
    """
    if not arrays:
        raise TypeError("sky.shard needs at least one array")
    lengths = [rows.count(array) for array in arrays]
    if len(set(lengths)) > 1:
        raise ValueError(f"the arrays must have equal lengths, but have {', '.join(map(str, lengths))}")
    total, (parts, part) = lengths[0], data_parts()
    start, stop = _bounds(total, parts, part, drop_last)
    if shuffle:
        chosen = order.shuffled(total, operator.index(seed), start, stop)
        taken = tuple(rows.take(array, chosen) for array in arrays)
    else:
        taken = tuple(rows.part(array, start, stop) for array in arrays)
    return taken[0] if len(arrays) == 1 else taken


def _bounds(total: int, parts: int, part: int, drop_last: bool) -> tuple[int, int]:
    size, rest = divmod(total, parts)
    if drop_last:
        return part * size, (part + 1) * size
    start = part * size + min(part, rest)
    return start, start + size + (part < rest)
