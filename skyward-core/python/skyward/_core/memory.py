"""Memory for large messages.

Allocating memory takes longer than copying into it: 64 MiB take about 20 ms in pages of 4 KiB, and
3 ms in huge pages. Large blocks are therefore mapped directly, with advice to use huge pages.
"""

from __future__ import annotations

import mmap
import sys
from typing import Any, Final

_LARGE: Final = 4 << 20
_HUGE_PAGE: Final = 2 << 20
_libc: Any = None


def allocate(size: int) -> memoryview:
    """Return writable memory of this size in bytes, which lives as long as it is referenced."""
    if size < _LARGE:
        return memoryview(bytearray(size))
    block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            block.madvise(mmap.MADV_HUGEPAGE)
        except OSError:
            pass  # the kernel has no huge pages
    return memoryview(block)


def to_bytes(data: memoryview) -> bytes:
    """Return a copy as `bytes`."""
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
    # The C API documents this use: bytes without content, to be filled before other code sees them.
    made: bytes = ctypes.pythonapi.PyBytes_FromStringAndSize(None, size)
    start = id(made) + bytes.__basicsize__ - 1
    first = -(-start // _HUGE_PAGE) * _HUGE_PAGE
    _libc.madvise(first, start + size - first, mmap.MADV_HUGEPAGE)
    memoryview((ctypes.c_char * size).from_address(start)).cast("B")[:] = data
    return made
