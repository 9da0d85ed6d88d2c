"""Rows of data of any type: count them, and select some without changing the type of the data."""

from __future__ import annotations

import sys
from collections import UserList, UserString, abc, deque
from collections.abc import Callable
from itertools import islice
from typing import Any

from .._values.advice import type_name


def count(data: Any) -> int:
    """Return the number of rows.

    Raises:
        TypeError: the data has no ordered rows; the message says what to do instead.
    """
    reason = _refusal(data)
    if reason:
        raise TypeError(f"cannot shard an object of type {type_name(type(data))}: {reason}")
    return int(data.shape[0]) if _is_sparse(data) else len(data)


def part(data: Any, start: int, stop: int) -> Any:
    """Return the rows from `start` to `stop`, with the type of the data."""
    if isinstance(data, range):
        return data[start:stop]
    return _checked(data, _part(data, start, stop))


def take(data: Any, order: Any) -> Any:
    """Return the rows at these positions, with the type of the data; a list for a `range`.

    Args:
        data: anything that `count` accepts.
        order: the positions, a list of int or an int64 NumPy array of shape `(n,)`.
    """
    if isinstance(data, range):
        return [data[index] for index in _ints(order)]
    return _checked(data, _take(data, order))


def _refusal(data: Any) -> str:
    """Return what to do with data whose rows cannot be selected; empty if they can."""
    if _is_sparse(data):
        return "" if data.ndim > 0 else "it has no rows"
    if isinstance(data, abc.Mapping):
        return (
            "a mapping may hold columns, or one entry per key; for columns use "
            "`{name: sky.shard(column) for name, column in data.items()}`, which keeps their rows aligned, for entries "
            "`dict(sky.shard(list(data.items())))`"
        )
    if isinstance(data, abc.Set):
        return "a set has no order that is the same on all workers; shard `sorted(data)`"
    package = _package(data)
    if package == "polars" and not hasattr(data, "__len__"):
        return "it is not computed yet; shard `data.collect()`"
    if _is_of("datasets", "IterableDataset", data):
        return "a stream has no known length; use `datasets.distributed.split_dataset_by_node(data, rank, world_size)`"
    if _is_of("torch.utils.data", "IterableDataset", data):
        return "it yields its items only once, in its own order; take every n-th item in its `__iter__`"
    if _is_of("torch.utils.data", "DataLoader", data):
        return "it yields batches; shard the dataset, and make a loader of the part"
    if package == "tensorflow" and hasattr(data, "element_spec"):
        return (
            "it yields its items only once; use `data.shard(info.total_workers, info.rank)` with `sky.instance_info()`"
        )
    if isinstance(getattr(data, "shape", None), tuple) and not data.shape:
        return "it has no dimensions, so it has no rows"
    if not hasattr(data, "__len__"):
        return "it has no length; shard `list(data)`" if hasattr(data, "__iter__") else "it is not a sequence"
    return ""


def _part(data: Any, start: int, stop: int) -> Any:
    if hasattr(data, "iloc"):
        return data.iloc[start:stop]
    package = _package(data)
    if _is_of("datasets", "Dataset", data):
        return data.select(range(start, stop))
    if package == "pyarrow":
        return data.slice(start, stop - start)
    if _is_sparse(data):
        return data.tocsr()[start:stop].asformat(data.format)
    if _is_torch_dataset(data):
        return _subset(data, range(start, stop))
    if isinstance(data, deque):
        return _like(data, islice(data, start, stop))
    rows = _sliced(data, slice(start, stop))
    return _like(data, rows) if isinstance(data, list | tuple) else rows


def _take(data: Any, order: Any) -> Any:
    if hasattr(data, "iloc"):
        return data.iloc[order]
    package = _package(data)
    if _is_of("datasets", "Dataset", data):
        return data.select(order)
    if package == "pyarrow":
        return data.take(sys.modules["pyarrow"].array(order, "int64"))
    if _is_sparse(data):
        return data.tocsr()[order].asformat(data.format)
    if package == "polars":
        return data[_ints(order)] if isinstance(order, list) else data[order]
    if _is_torch_dataset(data):
        return _subset(data, _ints(order))
    if hasattr(data, "dtype") and hasattr(data, "shape"):
        return _take_elements(data, order, package)
    if isinstance(data, str):
        return "".join([data[index] for index in _ints(order)])
    if isinstance(data, bytes | bytearray):
        return type(data)(bytearray([data[index] for index in _ints(order)]))
    if isinstance(data, memoryview):
        return _take_items(data, _ints(order))
    if hasattr(data, "typecode") and package == "array":
        return type(data)(data.typecode, [data[index] for index in _ints(order)])
    if isinstance(data, deque):
        # Indexing the middle of a deque is slow, so copy it first.
        data, given = list(data), data
        return _like(given, [data[index] for index in _ints(order)])
    if isinstance(data, list | tuple | UserList):
        return _like(data, [data[index] for index in _ints(order)])
    if isinstance(data, UserString):
        return type(data)("".join([str(data[index]) for index in _ints(order)]))
    raise TypeError(_unknown(data))


def _take_elements(data: Any, order: Any, package: str) -> Any:
    if package == "tensorflow":
        return sys.modules["tensorflow"].gather(data, order)
    if package in ("jax", "jaxlib"):
        return data[sys.modules["numpy"].asarray(order, dtype="int64")]
    if package == "torch":
        torch = sys.modules["torch"]
        return data[torch.as_tensor(order, dtype=torch.int64).to(data.device)]
    return _sliced(data, order)


def _take_items(view: memoryview, order: list[int]) -> memoryview:
    """Return a copy of these items, of any size and format to which Python can cast."""
    if view.ndim != 1:
        raise TypeError(f"{_unknown(view)}, or `numpy.asarray(data)`")
    size, given = view.itemsize, view.tobytes()
    taken = b"".join([given[index * size : (index + 1) * size] for index in order])
    items = memoryview(taken if view.readonly else bytearray(taken))
    try:
        return items if view.format == "B" else items.cast(view.format)  # type: ignore[call-overload]
    except ValueError as error:
        raise TypeError(f"{_unknown(view)}, or `numpy.asarray(data)`") from error


def _subset(data: Any, order: Any) -> Any:
    return sys.modules["torch"].utils.data.Subset(data, order)


def _sliced(data: Any, which: Any) -> Any:
    """Index the data; the types of other packages may not support that."""
    try:
        return data[which]
    except (TypeError, KeyError, IndexError, ValueError, NotImplementedError) as error:
        raise TypeError(_unknown(data)) from error


def _like(data: Any, rows: Any) -> Any:
    """Return a sequence of the data's own class."""
    if type(data) in (list, tuple) or hasattr(data, "_fields"):
        return (tuple if isinstance(data, tuple) else list)(rows)
    if isinstance(data, deque):
        return type(data)(rows, data.maxlen)
    kind: Callable[[Any], Any] = type(data)
    try:
        return kind(list(rows))
    except Exception as error:
        raise TypeError(_unknown(data)) from error


def _checked(data: Any, rows: Any) -> Any:
    """Return the rows if they have the type of the data: another type may mean columns."""
    if type(rows) is type(data) or isinstance(rows, _equals(data)):
        return rows
    raise TypeError(_unknown(data))


def _equals(data: Any) -> tuple[type, ...]:
    """Return the classes whose instances may represent a part of the data."""
    if isinstance(data, tuple):
        return (tuple,)
    if isinstance(data, str | bytes):
        return (str, bytes)
    if _is_torch_dataset(data):
        return (sys.modules["torch"].utils.data.Subset,)
    if _package(data) in ("torch", "jax", "jaxlib", "tensorflow", "numpy", "pandas", "scipy"):
        # A part may have a base class: of a torch Parameter a Tensor, of a memmap an ndarray, of a
        # RangeIndex an Index.
        return tuple(base for base in type(data).__mro__[:-1] if base is not object)
    return (type(data),)


def _unknown(data: Any) -> str:
    name = type_name(type(data))
    return (
        f"cannot shard an object of type {name}: Skyward cannot select its rows; shard the positions, and select the "
        "rows yourself: `[data[index] for index in sky.shard(range(len(data)))]`"
    )


def _is_torch_dataset(data: Any) -> bool:
    return _is_of("torch.utils.data", "Dataset", data)


def _is_of(module: str, name: str, data: Any) -> bool:
    """Return whether the data is an instance of this class, whose module need not be loaded."""
    kind = getattr(sys.modules.get(module), name, None)
    return isinstance(kind, type) and isinstance(data, kind)


def _is_sparse(data: Any) -> bool:
    return _package(data) == "scipy" and hasattr(data, "tocsr")


def _ints(order: Any) -> list[int]:
    return order if isinstance(order, list) else order.tolist()


def _package(data: Any) -> str:
    """Return the package of the data's class, or of one of its base classes."""
    known = ("pyarrow", "scipy", "polars", "tensorflow", "jax", "jaxlib", "torch", "numpy", "pandas", "array")
    packages = [base.__module__.partition(".")[0] for base in type(data).__mro__]
    return next((package for package in packages if package in known), "")
