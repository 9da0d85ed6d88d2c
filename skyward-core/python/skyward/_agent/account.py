"""A worker's account: a small file that records which runs the worker has begun.

The worker maps the file into its memory, so that the two numbers in it outlive the worker.
"""

from __future__ import annotations

import os
from typing import Final

from .._core.barrier import barrier

UNKNOWN: Final = (1 << 63) - 1
"""Reported when the file was cut short: any run may have begun."""


class Account:
    """One worker's account file: the last run that began, and the highest recalled run.

    The agent reads and writes the file by system calls. A mapping would end the agent if a payload
    cut the file short.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._file: int | None = None
        self._begun = 0

    def make(self) -> None:
        """Create the file, or reset the one of the previous worker, which works on a full disk too.

        Raises:
            OSError: the file cannot be created, or the disk has no room for it.
        """
        self.close()
        self._begun = 0
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        os.pwrite(self._file, bytes(16), 0)
        os.ftruncate(self._file, 16)

    def begun(self) -> int:
        """Return the number of the last run that the worker began."""
        if self._file is not None:
            self._begun = _number(os.pread(self._file, 8, 0))
        return self._begun

    def recall(self, upto: int) -> int:
        """Stop the worker from beginning runs up to this number; return the last run that it began.

        The worker first stores that a run begins and then looks for a recall. The agent first
        stores the recall and then looks for a run that has begun. With a barrier on both sides, at
        least one side sees the other. A barrier in the worker would cost time in each task, so the
        agent executes it for all processors.
        """
        if self._file is not None:
            data = os.pread(self._file, 16, 0)
            if len(data) < 16:
                # A write here would fill the missing part with zeros, as if no run had begun.
                return UNKNOWN
            known = _number(data[8:])
            os.pwrite(self._file, max(known, upto).to_bytes(8, "little"), 8)
            barrier()
        return self.begun()

    def close(self) -> None:
        """Read the file for the last time, after its worker has ended, and close it."""
        if self._file is not None:
            self.begun()
            os.close(self._file)
            self._file = None


def _number(data: bytes) -> int:
    return int.from_bytes(data, "little") if len(data) == 8 else UNKNOWN
