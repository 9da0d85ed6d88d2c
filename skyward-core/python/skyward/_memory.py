"""Memory for large messages.

Fresh memory costs more than copying into it does: 64 MiB in 4 KiB pages take about 20 ms to come into being, in huge
pages 3 ms. So large blocks are taken from the system directly, and huge pages are asked for.
"""

from __future__ import annotations

import mmap
import sys
from typing import Any, Final

_LARGE: Final = 4 << 20
_HUGE_PAGE: Final = 2 << 20
_libc: Any = None


def allocate(size: int) -> memoryview:
    """Writable memory of this size, which lives as long as something refers to it."""
    if size < _LARGE:
        return memoryview(bytearray(size))
    block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            block.madvise(mmap.MADV_HUGEPAGE)
        except OSError:
            pass  # a kernel without huge pages
    return memoryview(block)


def to_bytes(data: memoryview) -> bytes:
    """A copy as `bytes`."""
    size = len(data)
    if size < _LARGE or not sys.platform.startswith("linux"):
        return bytes(data)
    import ctypes

    global _libc
    if _libc is None:
        _libc = ctypes.CDLL(None)
        _libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        ctypes.pythonapi.PyBytes_FromStringAndSize.restype = ctypes.py_object
        ctypes.pythonapi.PyBytes_FromStringAndSize.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t)
    # Documented for this use: bytes without content, to be filled before anyone else sees them.
    made: bytes = ctypes.pythonapi.PyBytes_FromStringAndSize(None, size)
    start = id(made) + bytes.__basicsize__ - 1
    first = -(-start // _HUGE_PAGE) * _HUGE_PAGE
    _libc.madvise(first, start + size - first, mmap.MADV_HUGEPAGE)
    memoryview((ctypes.c_char * size).from_address(start)).cast("B")[:] = data
    return made
