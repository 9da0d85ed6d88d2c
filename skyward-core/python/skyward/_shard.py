"""Sharding: each worker's part of the data, agreed on by all workers without a word between them."""

from __future__ import annotations

import operator
from typing import Any, TypeVar, overload

from . import _order, _rows
from ._cluster import instance_info
from ._parts import data_parts

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
    most one. Every worker must be given the same data. There is a part for each worker; where Keras divides a model
    over the devices of several workers, those workers get the same part, for they compute on the same samples.

    Args:
        *arrays: data of equal length, which stays aligned: list, tuple, str, bytes, memoryview, range, deque,
            `array.array`; NumPy, JAX and TensorFlow arrays and torch tensors of shape `(n, ...)`; what pandas, polars
            and pyarrow have of `n` rows; SciPy's sparse matrices of shape `(n, m)`; Hugging Face datasets; map-style
            datasets of torch, of which a `Subset` comes back. A dict is refused, since it may be columns or entries.
        shuffle: put the data in a random order first, the same on all workers, with NumPy and without. A range
            becomes a list.
        seed: chooses the random order: an int of any size.
        drop_last: leave out what does not divide, so that all parts have the same size.

    Returns:
        The part of the one array, or a tuple of parts, each in the type that was given.

    Raises:
        ValueError: the arrays have different lengths.
        TypeError: the data has no rows that can be taken; the message names its type and what to do.
    """
    if not arrays:
        raise TypeError("shard needs at least one array")
    lengths = [_rows.count(array) for array in arrays]
    if len(set(lengths)) > 1:
        raise ValueError(f"the arrays must have equal lengths, but have {', '.join(map(str, lengths))}")
    total, (parts, part) = lengths[0], data_parts()
    start, stop = _bounds(total, parts, part, drop_last)
    if shuffle:
        order = _order.shuffled(total, operator.index(seed), start, stop)
        taken = tuple(_rows.take(array, order) for array in arrays)
    else:
        taken = tuple(_rows.part(array, start, stop) for array in arrays)
    return taken[0] if len(arrays) == 1 else taken


def _bounds(total: int, parts: int, part: int, drop_last: bool) -> tuple[int, int]:
    size, rest = divmod(total, parts)
    if drop_last:
        return part * size, (part + 1) * size
    start = part * size + min(part, rest)
    return start, start + size + (part < rest)
