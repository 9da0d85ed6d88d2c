"""What a forked child closes because its parent alone uses it: connections and locks.

A child that kept them would hide its parent's end from those who wait for it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final, Protocol
from weakref import WeakSet


class Closable(Protocol):
    """What can be closed."""

    def close(self) -> None:
        """Close it; nothing else may be using it."""


_own: Final[WeakSet[Closable]] = WeakSet()
_is_registered = False


def close_in_children(closable: Closable) -> None:
    """Close this in each child that the process forks from now on, as long as it exists."""
    global _is_registered
    if not _is_registered:
        _is_registered = True
        os.register_at_fork(after_in_child=_close)
    _own.add(closable)


def _close() -> None:
    for closable in list(_own):
        with suppress(OSError):
            closable.close()
    _own.clear()


class Descriptor:
    """A descriptor that is closed once."""

    def __init__(self, number: int) -> None:
        self._number: int | None = number

    def close(self) -> None:
        """Close it, unless it is closed already."""
        number, self._number = self._number, None
        if number is not None:
            os.close(number)
