"""Whether the kernel killed a worker for want of memory: it only counts such kills, and does not say whom it hit."""

from __future__ import annotations

import os
from collections.abc import Callable
from time import monotonic
from typing import Final

_FORGET: Final = 10.0
"""Seconds after which a kill that no worker's end has claimed hit something else: a process that a payload started."""


class OutOfMemory:
    """Tells the kernel's kills for want of memory from others. Each kill that was counted explains one worker's end."""

    def __init__(self, count: Callable[[], int] | None = None) -> None:
        """Begin with what has been counted so far.

        Args:
            count: how many processes of this control group the kernel has killed for want of memory.
        """
        self._count = count or oom_kills
        self._explained = self._seen = self._count()
        self._looked = monotonic()

    def look(self, now: float) -> None:
        """Give up kills that were counted a while ago and that no worker's end has claimed."""
        if now - self._looked >= _FORGET:
            self._explained = max(self._explained, self._seen)
            self._seen = self._count()
            self._looked = now

    def claim(self) -> bool:
        """Whether there is a kill that explains the end of a worker by SIGKILL; it explains no other then."""
        if self._count() <= self._explained:
            return False
        self._explained += 1
        return True


def oom_kills() -> int:
    """How many processes the kernel has killed in this control group for want of memory; 0 where it does not say."""
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
        real = {os.path.realpath(path): path for path in found if os.access(path, os.R_OK)}
        _OOM_FILES = list(real.values())[:1]
    return _OOM_FILES


_OOM_FILES: list[str] | None = None
