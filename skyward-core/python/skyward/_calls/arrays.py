"""NumPy arrays in calls: large ones travel as names of files in the store."""

from __future__ import annotations

import sys
import zlib
from mmap import mmap
from typing import Any, Final, NamedTuple
from weakref import ref

from .. import _state
from .errors import CallError
from .store import Hold, Store, StoreFullError

_LEAST: Final = 1 << 18
"""Bytes of an array from which on it goes to the store."""
_LEAST_KNOWN: Final = 1 << 20
"""Bytes of an array from which on it is known by its identity: as in joblib."""
_SAMPLE: Final = 4096
"""Elements that tell whether an array that is known has been filled anew."""
_MOST: Final = 64
"""Arrays of one call that go to the store: each takes the caller and the worker a descriptor."""


class Reference:
    """A value that is pickled already."""

    __slots__ = ("holds", "reduced")

    def __init__(self, reduced: tuple[Any, ...], holds: list[Hold]) -> None:
        """Remember it.

        Args:
            reduced: how to unpickle it: a function and its arguments.
            holds: what it needs of the store.
        """
        self.reduced = reduced
        self.holds = holds


class _Known(NamedTuple):
    array: ref[Any]
    form: Any
    hold: Hold | None


class Seen:
    """Arrays that are known to be in the store by their identity, as long as this and they live.

    Samples of their bytes tell whether the caller has filled one anew.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._known: dict[int, _Known] = {}

    def add(self, array: Any, hold: Hold | None) -> None:
        """Take note of an array."""
        key = id(array)
        form = None if hold is None else _form(array)
        self._known[key] = _Known(ref(array, lambda _: self._known.pop(key, None)), form, hold)

    def has(self, array: Any) -> bool:
        """Whether there was this array, whatever is in it now."""
        known = self._known.get(id(array))
        return known is not None and known.array() is array

    def get(self, array: Any) -> Hold | None:
        """Where its bytes are, if that is known."""
        known = self._known.get(id(array))
        if known is None or known.array() is not array or known.form != _form(array):
            return None
        return known.hold


_before: Final = Seen()
"""Those that were put into the store some time."""


class Storing:
    """Puts the arrays of one call into the store."""

    def __init__(self, store: Store, rank: int, seen: Seen | None = None) -> None:
        """Begin.

        Args:
            store: that of this node.
            rank: that of this worker, which other nodes are to ask.
            seen: what is known of arrays that the caller does not change; None: nothing.
        """
        self._store = store
        self._rank = rank
        self._seen = seen
        self.kind: Any = getattr(sys.modules.get("numpy"), "ndarray", None)
        """The type of arrays; None where nothing has loaded NumPy."""
        self.holds: list[Hold] = []
        """What must stay in the store until the call has its outcome."""
        self.looked_at = 0
        """Bytes that were hashed."""
        self.full = ""
        """Why an array did not go there."""

    def begin_again(self) -> None:
        """The call is pickled once more, in another way."""
        self.holds.clear()
        self.looked_at = 0

    def reduce(self, array: Any) -> Any:
        """How to pickle an array; None for one that is pickled with its bytes."""
        if array.nbytes < _LEAST or array.dtype.hasobject or len(self.holds) >= _MOST:
            return None
        flags = array.flags
        fortran = bool(flags.f_contiguous and not flags.c_contiguous)
        hold = None if self._seen is None else self._seen.get(array)
        if hold is None:
            try:
                hold = self._store.put(_bytes_of(array, fortran), is_known=_before.has(array))
                _before.add(array, None)
            except StoreFullError as error:
                self.full = str(error)
                return None
            self.looked_at += hold.size
            if self._seen is not None and array.nbytes >= _LEAST_KNOWN:
                self._seen.add(array, hold)
        self.holds.append(hold)
        return restore, (hold.digest, hold.size, self._rank, array.dtype, array.shape, fortran)

    def reduce_bytes(self, data: memoryview) -> Any:
        """The same for bytes that are a pickle: how to unpickle them."""
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
    """What puts the arrays of one call into this node's store; None where there is none."""
    store = _store()
    return None if store is None else Storing(store, _state.worker.rank, seen)


def restore(digest: str, size: int, rank: int, dtype: Any, shape: tuple[int, ...], fortran: bool) -> Any:
    """An array that lies in the store; what is changed in it is a copy.

    Raises:
        CallError: its bytes are not to be had.
    """
    import numpy as np

    return np.ndarray(shape, dtype, _find(digest, size, rank), order="F" if fortran else "C")


def unpickle(digest: str, size: int, rank: int) -> Any:
    """A value whose pickle lies in the store.

    Raises:
        CallError: its bytes are not to be had.
    """
    from .pickles import loads

    return loads(memoryview(_find(digest, size, rank)))


def _find(digest: str, size: int, rank: int) -> mmap | bytearray:
    """The bytes of a file, which comes from another node if this one does not have it."""
    store = _store()
    if store is None:
        raise CallError("an argument lies in the store of the pool's nodes, which this process does not have")
    try:
        while (found := store.load(digest, size)) is None:
            from . import fetching

            store.receive(digest, size, lambda: fetching.pieces(digest, size, rank))
    except (OSError, StoreFullError, ValueError) as error:
        raise CallError(f"an argument of {size} bytes could not be stored on this node: {error}") from error
    return found


def _store() -> Store | None:
    """That of this process, made when it is first needed."""
    worker = _state.worker
    if worker is None or worker.store_folder is None:
        return None
    store: Store | None = worker.store
    if store is None:
        # Without a lock, which an interrupt may leave locked: two of them do no harm.
        store = worker.store = Store(worker.store_folder, worker.store_bytes)
    return store


def _bytes_of(array: Any, fortran: bool) -> memoryview:
    """The bytes of an array in the order in which they are stored; a copy only where they do not lie together."""
    import numpy as np

    flat: Any = np.ascontiguousarray(array.T if fortran else array).reshape(-1)
    return memoryview(flat.view(np.uint8))


def _form(array: Any) -> Any:
    """What an array looks like, with a checksum of some thousand elements all over it."""
    sample = zlib.crc32(array.flat[:: max(1, array.size // _SAMPLE)].tobytes())
    return array.shape, array.strides, array.dtype, array.__array_interface__["data"], sample
