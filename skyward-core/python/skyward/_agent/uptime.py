"""The machine's clock that nobody can set."""

from __future__ import annotations

import os
from time import time_ns
from typing import Final

_FILE: Final = "/proc/uptime"
"""Shells read the same file. In some containers it differs from `CLOCK_BOOTTIME`."""


def touch(path: str) -> None:
    """Set the time of a file to the machine's uptime, so that the file's age does not depend on the wall clock.

    The time of the last access is the wall clock's, for programs that remove old files.
    Raises `OSError`, such as `FileNotFoundError`: the file is never made.
    """
    uptime = nanoseconds()
    if uptime is None:
        os.utime(path)
    else:
        os.utime(path, ns=(time_ns(), uptime))


def nanoseconds() -> int | None:
    """Return the machine's uptime in nanoseconds, or `None` where the machine does not tell it."""
    try:
        with open(_FILE, encoding="utf-8") as file:
            return round(float(file.read().split()[0]) * 1e9)
    except (OSError, ValueError, IndexError):
        return None
