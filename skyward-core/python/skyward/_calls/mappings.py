"""Mappings of the store's files that one call after another uses.

To map a large file anew often takes longer than the call that reads the array: the system enters
each page that the call reads into the page table of the process, and removes it again. So a worker
keeps the mappings of its last call for a moment. The next call with the same array gets the same
mapping if nothing uses the mapping, and if no call has changed a page of it.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys
from array import array
from io import FileIO
from mmap import PAGESIZE, mmap
from typing import Final, NamedTuple

from .handlers import ignored

_MOST: Final = 16
"""The most mappings that are kept: each has a second descriptor of its file."""
_SCAN: Final = struct.Struct("12Q")
"""`struct pm_scan_arg` of the kernel's `Documentation/admin-guide/mm/pagemap.rst`: size, flags, start,
end, walk_end, vec, vec_len, max_pages, and the masks category_inverted, category_mask,
category_anyof_mask and return_mask.
"""
_PAGEMAP_SCAN: Final = (3 << 30) | (_SCAN.size << 16) | (ord("f") << 8) | 16
"""The request; Linux has it since 6.7."""
_FILE: Final = 1 << 2
"""The category of pages that are the file's, and not a private copy."""
_IN_USE: Final = (1 << 3) | (1 << 4)
"""The categories of pages in memory, and of those in swap."""


class _Kept(NamedTuple):
    mapped: mmap
    address: int
    """Where the mapping begins."""
    file: FileIO
    """Holds the lock, as the mapping does: both have the same open file."""
    call: int
    """The number of the last call that used it."""


class Mappings:
    """The mappings of the last call of one process, by the names of their files."""

    def __init__(self) -> None:
        """Start without a mapping."""
        self._kept: dict[str, _Kept] = {}
        self._call = 0
        self._is_supported: bool | None = None
        """Whether the system reports changes; None if that is not known yet."""

    def __bool__(self) -> bool:
        """Return whether a mapping is kept."""
        return bool(self._kept)

    def keep(self, digest: str, mapped: mmap, address: int, file: FileIO) -> None:
        """Keep a mapping that a call gets, for the next call.

        Args:
            digest: the name of the file.
            mapped: its mapping.
            address: the address at which the mapping begins.
            file: the file, open and locked; the mapping was made of it.
        """
        if self._is_supported is None:
            is_supported = False
            with ignored(OSError):
                _has_changed(address, len(mapped))
                is_supported = True
            self._is_supported = is_supported
        if self._is_supported and len(self._kept) < _MOST:
            self._kept[digest] = _Kept(mapped, address, file, self._call)

    def take(self, digest: str) -> tuple[mmap, FileIO] | None:
        """Return a mapping of this file that nothing uses and nobody has changed, or None."""
        kept = self._kept.pop(digest, None)
        # A payload may have closed the mapping: it is the base of its array.
        if kept is None or kept.mapped.closed or not _is_unused(kept):
            return None
        with ignored(OSError):
            fcntl.flock(kept.file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            if os.fstat(kept.file.fileno()).st_nlink and not _has_changed(kept.address, len(kept.mapped)):
                # The store removes the least recently used files first.
                os.utime(kept.file.fileno())
                return kept.mapped, kept.file
        return None

    def on_loaded(self) -> None:
        """The arguments of a call are complete: give up the mappings that it does not use."""
        for digest, kept in list(self._kept.items()):
            if kept.call < self._call:
                self._kept.pop(digest, None)
        self._call += 1

    def on_ended(self) -> None:
        """A call has ended: the files of unused mappings may be removed from the store."""
        for digest in list(self._kept):
            # Removed meanwhile, so that a call on another thread cannot take it, and lose its lock.
            kept = self._kept.pop(digest, None)
            if kept is None:
                continue
            if _is_unused(kept):
                with ignored(OSError):
                    fcntl.flock(kept.file, fcntl.LOCK_UN)
            self._kept.setdefault(digest, kept)

    def give_up(self) -> None:
        """Give up all mappings."""
        self._kept.clear()


def _has_changed(address: int, size: int) -> bool:
    """Return whether a private mapping has a page that is no longer the file's.

    Raises:
        OSError: the system cannot tell.
    """
    region = array("Q", (0, 0, 0))
    end = address + -(-size // PAGESIZE) * PAGESIZE
    fields = (_SCAN.size, 0, address, end, 0, region.buffer_info()[0], 1, 1, _FILE, _FILE, _IN_USE, _IN_USE)
    scan = bytearray(_SCAN.pack(*fields))
    # Opened each time: in a forked child, an open file would still be its parent's memory.
    with FileIO("/proc/self/pagemap") as pagemap:
        regions: int = fcntl.ioctl(pagemap, _PAGEMAP_SCAN, scan)
    return regions > 0


def _is_unused(kept: _Kept) -> bool:
    """Return whether nothing but one `_Kept` refers to the mapping."""
    return _references(kept) == _UNUSED


def _references(kept: _Kept) -> int:
    return sys.getrefcount(kept.mapped)


_UNUSED: Final = _references(_Kept(mmap(-1, 1), 0, FileIO("/dev/null"), 0))
"""What `_references` returns for an unused mapping; it depends on Python's version."""
