"""Sharding: each worker's part of the data, agreed on by all workers without a word between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, overload

from ._cluster import instance_info

T = TypeVar("T")


class _Head:
    """Whether this worker has rank 0: true or false by itself, and also when called."""

    def __bool__(self) -> bool:
        return instance_info().is_head

    def __call__(self) -> bool:
        """Whether this worker has rank 0."""
        return instance_info().is_head

    def __eq__(self, other: object) -> bool:
        return bool(self) == other

    def __hash__(self) -> int:
        return hash(bool(self))

    def __repr__(self) -> str:
        return repr(bool(self))


is_head = _Head()
"""Whether this worker has rank 0: `if sky.is_head:` and `if sky.is_head():` are the same."""


@overload
def shard(array: T, /, *, shuffle: bool = False, seed: int = 0, drop_last: bool = False) -> T: ...
@overload
def shard(*arrays: Any, shuffle: bool = False, seed: int = 0, drop_last: bool = False) -> tuple[Any, ...]: ...


def shard(*arrays: Any, shuffle: bool = False, seed: int = 0, drop_last: bool = False) -> Any:
    """This worker's part of the data, in the type that was given.

    The parts are contiguous (of the shuffled order, with `shuffle`), cover everything once, and differ in size by at
    most one. Every worker must be given the same data.

    Args:
        *arrays: sequences of equal length: list, tuple, str, range, NumPy array of shape `(n, ...)`, torch tensor of
            shape `(n, ...)`, pandas object, or whatever has a length and can be indexed. They stay aligned.
        shuffle: put the data in a random order first, the same on all workers.
        seed: chooses the random order.
        drop_last: leave out what does not divide, so that all parts have the same size.

    Returns:
        The part of the one array, or a tuple of parts.

    Raises:
        ValueError: the arrays have different lengths.
    """
    if not arrays:
        raise TypeError("shard needs at least one array")
    lengths = [len(array) for array in arrays]
    if len(set(lengths)) > 1:
        raise ValueError(f"the arrays must have equal lengths, but have {', '.join(map(str, lengths))}")
    info = instance_info()
    total, parts, part = lengths[0], info.total_workers, info.global_worker_index
    start, stop = _bounds(total, parts, part, drop_last)
    if shuffle:
        order = _permutation(total, seed)[start:stop]
        taken = tuple(_take(array, order) for array in arrays)
    else:
        taken = tuple(_slice(array, start, stop) for array in arrays)
    return taken[0] if len(arrays) == 1 else taken


def _bounds(total: int, parts: int, part: int, drop_last: bool) -> tuple[int, int]:
    size, rest = divmod(total, parts)
    if drop_last:
        return part * size, (part + 1) * size
    start = part * size + min(part, rest)
    return start, start + size + (part < rest)


def _permutation(total: int, seed: int) -> list[int]:
    """A random order that depends on nothing but the length and the seed."""
    import random

    # Seeding with an int, and random() alone, are the parts of the generator that Python promises to keep.
    draw = random.Random(seed).random
    order = list(range(total))
    for last in range(total - 1, 0, -1):
        other = int(draw() * (last + 1))
        order[last], order[other] = order[other], order[last]
    return order


def _slice(array: Any, start: int, stop: int) -> Any:
    by_position = getattr(array, "iloc", None)
    return array[start:stop] if by_position is None else by_position[start:stop]


def _take(array: Any, order: Sequence[int]) -> Any:
    by_position = getattr(array, "iloc", None)
    if by_position is not None:
        return by_position[list(order)]
    if isinstance(array, str):
        return "".join(array[index] for index in order)
    if isinstance(array, bytes | bytearray):
        return type(array)(array[index] for index in order)
    if hasattr(array, "dtype") and hasattr(array, "shape"):
        return _take_rows(array, order)
    rows = [array[index] for index in order]
    if hasattr(array, "typecode"):
        return type(array)(array.typecode, rows)
    if isinstance(array, tuple):
        return tuple(rows) if type(array) is tuple or hasattr(array, "_fields") else type(array)(rows)
    return rows if type(array) is list or not isinstance(array, list) else type(array)(rows)


def _take_rows(array: Any, order: Sequence[int]) -> Any:
    module = type(array).__module__.partition(".")[0]
    if module == "tensorflow":
        import tensorflow

        return tensorflow.gather(array, list(order))
    if module in ("jax", "jaxlib"):
        import numpy

        return array[numpy.asarray(order, dtype=numpy.int64)]
    return array[list(order)]
