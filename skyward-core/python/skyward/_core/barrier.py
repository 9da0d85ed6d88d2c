"""A memory barrier on all processors, for two processes that share numbers in a mapped file.

Each process stores a number of its own and then loads that of the other. With a barrier between the
two on both sides, at least one process sees what the other has stored. One process can execute the
barrier for both.
"""

from __future__ import annotations

import ctypes
import platform
import sys
import time
from typing import Final

_SYSCALLS: Final = {"x86_64": 324, "aarch64": 283, "riscv64": 283, "ppc64le": 365, "s390x": 356}
"""The number of the system call `membarrier`, by processor architecture."""
_GLOBAL: Final = 1
_SETTLED: Final = 0.01
"""Seconds after which all processors see a store; in practice, a microsecond is enough."""
_LIBC: Final = ctypes.CDLL(None)


def barrier() -> None:
    """Make each processor finish its stores before its next loads."""
    number = _SYSCALLS.get(platform.machine()) if sys.platform.startswith("linux") else None
    if number is not None and _LIBC.syscall(number, _GLOBAL, 0, 0) == 0:
        return
    # Some systems do not have this call, and systems with processors isolated from the kernel
    # refuse it.
    time.sleep(_SETTLED)
