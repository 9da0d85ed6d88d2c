"""How far a worker has come: two numbers in a file that it maps into its memory, so that they outlive it."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
import time
from typing import Final

UNKNOWN: Final = (1 << 63) - 1
"""Any run may have begun."""
_SYSCALLS: Final = {"x86_64": 324, "aarch64": 283, "riscv64": 283, "ppc64le": 365, "s390x": 356}
"""The number of `membarrier`."""
_GLOBAL: Final = 1
_SETTLED: Final = 0.01
"""Seconds after which a store is seen by all processors, which takes less than a microsecond."""
_LIBC: Final = ctypes.CDLL(None)


class Account:
    """The file: the run that the worker began last, and up to which number no further run must begin.

    The agent reads and writes it by system calls: a mapping would end the agent where a payload has cut the file short.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._file: int | None = None
        self._begun = 0

    def make(self) -> None:
        """Make the file, or set that of the worker before to its beginning: a full disk has room for that.

        Raises:
            OSError: it cannot be made, or the disk has no room for it.
        """
        self.close()
        self._begun = 0
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        os.pwrite(self._file, bytes(16), 0)
        os.ftruncate(self._file, 16)

    def begun(self) -> int:
        """The last run that the worker began."""
        if self._file is not None:
            self._begun = _number(os.pread(self._file, 8, 0))
        return self._begun

    def recall(self, upto: int) -> int:
        """Keep the worker from beginning runs up to this number; the last run that it began.

        The worker stores that it begins and then looks for a recall; here it is the other way round. With a barrier on
        both sides one of the two sees the other. The worker's would cost each task, so all of it is done here.
        """
        if self._file is not None:
            data = os.pread(self._file, 16, 0)
            if len(data) < 16:
                # Writing would fill what was cut off with zeros, as if nothing had begun.
                return UNKNOWN
            known = _number(data[8:])
            os.pwrite(self._file, max(known, upto).to_bytes(8, "little"), 8)
            _barrier()
        return self.begun()

    def close(self) -> None:
        """Read it for the last time: its worker has ended."""
        if self._file is not None:
            self.begun()
            os.close(self._file)
            self._file = None


def _number(data: bytes) -> int:
    return int.from_bytes(data, "little") if len(data) == 8 else UNKNOWN


def _barrier() -> None:
    """Have each processor finish its stores before it goes on with its loads."""
    number = _SYSCALLS.get(platform.machine()) if sys.platform.startswith("linux") else None
    if number is not None and _LIBC.syscall(number, _GLOBAL, 0, 0) == 0:
        return
    # Not every system has it, and one that keeps processors free of the kernel refuses it.
    time.sleep(_SETTLED)
