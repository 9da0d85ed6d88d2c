"""Locks that the code of a waiting thread can be seen to hold."""

from __future__ import annotations

import sys
import threading
from _thread import RLock, allocate_lock
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

_BELOW: Final = {"skyward._tasks.runner", "skyward._nested.helping"}
"""The modules that call a payload, and a call within it."""

_CHECKS: Final[dict[type, Callable[[Any], bool]]] = {
    type(allocate_lock()): lambda lock: bool(lock.locked()),
    RLock: lambda lock: bool(lock._is_owned()),
    threading.Condition: lambda condition: bool(condition._is_owned()),
    threading.Semaphore: lambda semaphore: semaphore._value == 0,
    threading.BoundedSemaphore: lambda semaphore: semaphore._value == 0,
}
"""For each kind of lock, whether a thread that takes it now would wait, or would be inside it twice."""

_MOST: Final = 256
_known: dict[int, tuple[dict[str, Any], int, list[Any]]] = {}
"""The locks of a module, by the identity of its names: the names, how many there were, the locks."""


def are_held() -> bool:
    """Return whether the payload of this thread may hold a lock that a call on this thread takes.

    Seen are the locks that are global names of the modules whose functions this thread runs. Nobody
    knows which thread holds a plain lock, so each that is locked counts.
    """
    frame: FrameType | None = sys._getframe(1)
    last: dict[str, Any] = {}
    while frame is not None:
        names = frame.f_globals
        if names is not last:
            last = names
            if names.get("__name__") in _BELOW:
                return False
            for lock in _locks_of(names):
                if _CHECKS[type(lock)](lock):
                    return True
        frame = frame.f_back
    return False


def _locks_of(names: dict[str, Any]) -> list[Any]:
    # Each wait asks, and most modules have many names and no lock.
    known = _known.get(id(names))
    if known is None or known[0] is not names or known[1] != len(names):
        if len(_known) >= _MOST:
            _known.clear()
        # Another thread may change the names meanwhile.
        values = list(names.values())
        known = _known[id(names)] = (names, len(values), [value for value in values if type(value) in _CHECKS])
    return known[2]
