"""Detect whether the kernel killed a worker because memory ran out.

The kernel only counts such kills and does not report which process it killed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from time import monotonic
from typing import Final

_FORGET: Final = 10.0
"""Seconds after which a counted kill that matches no worker's end is attributed to a child of a
payload.
"""


class OutOfMemory:
    """Attributes the kernel's out-of-memory kills to workers; each kill explains one end."""

    def __init__(self, count: Callable[[], int] | None = None) -> None:
        """Start from the current count.

        Args:
            count: returns how many processes of this control group the kernel has killed because
                memory ran out.
        """
        self._count = count or oom_kills
        self._explained = self._seen = self._count()
        self._looked = monotonic()

    def look(self, now: float) -> None:
        """Give up counted kills that no worker's end has claimed for some time."""
        if now - self._looked >= _FORGET:
            self._explained = max(self._explained, self._seen)
            self._seen = self._count()
            self._looked = now

    def claim(self) -> bool:
        """Claim a kill as the reason of a worker's end by SIGKILL; return whether there was one."""
        if self._count() <= self._explained:
            return False
        self._explained += 1
        return True


def oom_kills() -> int:
    """Return the number of processes of this control group that the kernel has killed.

    Only kills because memory ran out count. The number is 0 if the kernel does not report it.
    """
    total = 0
    for path in _oom_files():
        try:
            with open(path) as file:
                total += sum(int(line.split()[1]) for line in file if line.startswith("oom_kill "))
        except (OSError, ValueError, IndexError):
            continue
    return total


def _oom_files() -> list[str]:
    global _OOM_FILES
    if _OOM_FILES is None:
        found = ["/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"]
        try:
            with open("/proc/self/cgroup") as file:
                for line in file:
                    _, controllers, path = line.rstrip("\n").split(":", 2)
                    if controllers == "":
                        found.insert(0, f"/sys/fs/cgroup{path}/memory.events")
                    elif "memory" in controllers.split(","):
                        found.insert(0, f"/sys/fs/cgroup/memory{path}/memory.oom_control")
        except OSError:
            pass
        _OOM_FILES = [path for path in found if os.access(path, os.R_OK)][:1]
    return _OOM_FILES


_OOM_FILES: list[str] | None = None
