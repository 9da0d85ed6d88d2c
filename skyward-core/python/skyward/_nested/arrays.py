"""NumPy arrays in calls: large ones are sent as names of files in the store."""

from __future__ import annotations

import copyreg
import sys
import zlib
from io import FileIO
from mmap import mmap
from typing import Any, Final, NamedTuple
from weakref import ref

from .._calls import process_store
from .._calls.errors import CallError
from .._calls.handlers import raised_by_handler
from .._calls.pickles import loads
from .._calls.references import Unstored
from .._calls.store import Hold, Store, StoreFullError
from .._core import state

_LEAST: Final = 1 << 18
"""Bytes from which on an array is put into the store."""
_LEAST_KNOWN: Final = 1 << 20
"""Bytes from which on an array is recognised by its identity, as in joblib."""
_SAMPLE: Final = 4096
"""The number of elements that are compared to find out whether a known array has changed."""
_MOST: Final = 64
"""The most arrays per call in the store: each needs descriptors in the caller and the worker."""


class _Known(NamedTuple):
    array: ref[Any]
    form: Any
    hold: Hold | None


class Seen:
    """Arrays that are in the store, recognised by their identity while this object and they live.

    Samples of their bytes show whether the caller has changed one.
    """

    def __init__(self) -> None:
        """Start with no arrays."""
        self._known: dict[int, _Known] = {}

    def add(self, array: Any, hold: Hold | None) -> None:
        """Record an array."""
        key = id(array)
        form = None if hold is None else _form(array)
        self._known[key] = _Known(ref(array, lambda _: self._known.pop(key, None)), form, hold)

    def has(self, array: Any) -> bool:
        """Return whether this array was recorded, even if its content has changed since."""
        known = self._known.get(id(array))
        return known is not None and known.array() is array

    def get(self, array: Any) -> Hold | None:
        """Return where the array's bytes are, or None if it is unknown or has changed."""
        known = self._known.get(id(array))
        if known is None or known.array() is not array or known.form != _form(array):
            return None
        return known.hold


_before: Final = Seen()
"""Arrays that were put into the store before."""


class Storing(Unstored):
    """Puts the arrays of one call into the store."""

    def __init__(self, store: Store, rank: int, seen: Seen | None = None) -> None:
        """Start with no arrays.

        Args:
            store: the store of this node.
            rank: the rank of this worker, from which other nodes request the files.
            seen: arrays that the caller does not change; None for no such knowledge.
        """
        super().__init__()
        self._store = store
        self._rank = rank
        self._seen = seen
        self.kind = getattr(sys.modules.get("numpy"), "ndarray", None)

    def reduce(self, array: Any) -> Any:
        """Return how to pickle an array by name; None to pickle it with its bytes.

        Args:
            array: an array, of NumPy's own class or of a class derived from that.
        """
        plain = _plain(array)
        if plain.nbytes < _LEAST or plain.dtype.hasobject or len(self.holds) >= _MOST or not _is_an_array(type(array)):
            return None
        flags = plain.flags
        fortran = bool(flags.f_contiguous and not flags.c_contiguous)
        hold = None if self._seen is None else self._seen.get(array)
        if hold is None:
            try:
                hold = self._store.put(_bytes_of(plain, fortran), is_known=_before.has(array))
                _before.add(array, None)
            except StoreFullError as error:
                self.full = str(error)
                return None
            self.looked_at += hold.size
            if self._seen is not None and plain.nbytes >= _LEAST_KNOWN:
                self._seen.add(array, hold)
        self.holds.append(hold)
        return restore, (hold.digest, hold.size, self._rank, type(array), plain.dtype, plain.shape, fortran)

    def reduce_bytes(self, data: memoryview) -> Any:
        """Return how to unpickle a pickle from the store; None if it is not stored."""
        if len(data) >= _LEAST:
            try:
                hold = self._store.put(data)
            except StoreFullError as error:
                self.full = str(error)
            else:
                self.holds.append(hold)
                return unpickle, (hold.digest, hold.size, self._rank)
        return None


def storing(seen: Seen | None = None) -> Storing | None:
    """Return an object that puts one call's arrays into this node's store; None without a store."""
    store = process_store.found()
    return None if store is None else Storing(store, state.worker.rank, seen)


def restore(
    digest: str, size: int, rank: int, kind: type[Any], dtype: Any, shape: tuple[int, ...], fortran: bool
) -> Any:
    """Return an array whose bytes are in the store; changes are made to a private copy.

    Raises:
        CallError: its bytes cannot be read or fetched.
    """
    import numpy as np

    found, file = _find(digest, size, rank)
    array: Any = np.ndarray.__new__(kind, shape, dtype, found, order="F" if fortran else "C")
    mappings = process_store.mappings()
    if mappings is not None and type(found) is mmap:
        mappings.keep(digest, found, _plain(array).__array_interface__["data"][0], file)
    return array


def unpickle(digest: str, size: int, rank: int) -> Any:
    """Return a value whose pickle is in the store.

    Raises:
        CallError: its bytes cannot be read or fetched.
    """
    return loads(memoryview(_find(digest, size, rank)[0]))


def _find(digest: str, size: int, rank: int) -> tuple[mmap | bytearray, FileIO]:
    """Return the bytes of a file and the file, fetched if this node does not have it."""
    store = process_store.found()
    if store is None:
        raise CallError("an argument is in the store of the pool's nodes, to which this process has no access")
    try:
        while (found := store.load(digest, size)) is None:
            from . import fetching

            store.receive(digest, size, lambda: fetching.pieces(digest, size, rank))
    except (OSError, StoreFullError, ValueError) as error:
        if raised_by_handler(error):
            raise
        raise CallError(f"cannot store an argument of {size} bytes on this node: {error}") from error
    return found


def _plain(array: Any) -> Any:
    """Return a view of an array that has nothing of a class derived from NumPy's."""
    import numpy as np

    return np.ndarray.view(array, np.ndarray)


def _is_an_array(kind: type[Any]) -> bool:
    """Return whether the pickle of an object of this class is that of an array: `np.memmap` has one."""
    import numpy as np

    names = ("__reduce_ex__", "__reduce__", "__setstate__")
    return all(getattr(kind, name) is getattr(np.ndarray, name) for name in names) and (
        kind not in copyreg.dispatch_table
    )


def _bytes_of(array: Any, fortran: bool) -> memoryview:
    """Return an array's bytes in the order of storage; copied only if they are not contiguous."""
    import numpy as np

    flat: Any = np.ascontiguousarray(array.T if fortran else array).reshape(-1)
    return memoryview(flat.view(np.uint8))


def _form(array: Any) -> Any:
    """Describe an array, with a checksum of some thousand elements spread over it."""
    array = _plain(array)
    sample = zlib.crc32(array.flat[:: max(1, array.size // _SAMPLE)].tobytes())
    return array.shape, array.strides, array.dtype, array.__array_interface__["data"], sample
