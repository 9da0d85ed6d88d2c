"""The files of a worker's output.

They keep their length, so that an offset stays what it is, and give the disk back what the client
has received, or what nobody takes.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from typing import Any, Final

from .log import log

KEPT: Final = 8 << 20
"""Bytes that stay although they were sent: more than is under way if the connection breaks."""
MOST: Final = 256 << 20
"""Bytes that stay although the client does not take them."""
_LEAST_KEPT: Final = 256 << 10
_LEAST: Final = 1 << 20
"""The same on a disk without room."""
_STEP: Final = 1 << 20
"""The fewest bytes that are given back at once."""
_PUNCH: Final = 3
"""The flags of `fallocate` that make a hole and leave the length."""
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


class Spool:
    """One file of output."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.start = 0
        """The bytes before this offset are gone."""
        self.sent = 0
        """The bytes before this offset were sent to the client, if they were not gone."""
        self._is_able = True

    def open(self) -> int:
        """Open the file for a worker that begins to write, perhaps behind an earlier one.

        Raises:
            OSError: the file cannot be created.
        """
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with contextlib.suppress(OSError, AttributeError):
            # What an earlier worker's file has given back is a hole. There is none in an empty file.
            self.start = os.lseek(file, 0, os.SEEK_DATA)
        self.sent = self.start
        return file

    def size(self) -> int:
        """Return the length of the file."""
        try:
            return os.stat(self.path).st_size
        except OSError:
            return 0

    def note(self, offset: int) -> bytes:
        """Return what to send in place of the bytes from this offset on that are gone."""
        missing = self.start - offset
        text = f"\nskyward: {missing} bytes of output are missing here: the client did not take them in time\n"
        return text.encode()[:missing]

    def give_back(self) -> None:
        """Give the disk back what need not stay."""
        size = self.size()
        if size - self.start < _STEP or not self._is_able:
            return
        try:
            disk = os.statvfs(self.path)
            free = disk.f_bavail * disk.f_frsize
            kept = min(KEPT, max(_LEAST_KEPT, free // 8))
            most = min(MOST, max(_LEAST, free // 2))
            upto = max(min(self.sent, size) - kept, size - most)
            upto -= upto % max(disk.f_bsize, 4096)
            if upto - self.start >= min(_STEP, kept):
                self._punch(upto)
                self.start = upto
        except OSError as error:
            self._is_able = False
            log(f"{self.path} gives no room back and grows until the pool ends: {error.strerror}")

    def _punch(self, upto: int) -> None:
        fallocate: Any = getattr(_LIBC, "fallocate", None)
        if fallocate is None:
            raise OSError(0, "the system has no `fallocate`")
        fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
        file = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            if fallocate(file, _PUNCH, 0, upto):
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number))
        finally:
            os.close(file)
