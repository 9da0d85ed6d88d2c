"""How a payload says that it goes on."""

from __future__ import annotations

import os
from time import monotonic, time_ns
from typing import Final

from . import _state

_EVERY: Final = 0.05
"""Seconds; what is said more often says nothing more."""
_said = 0.0


def progress() -> None:
    """Say that the task goes on, for a pool that ends gangs which make no progress (`Limits::stall`).

    Whoever prints, yields items or returns says so already; a long silent computation calls this. It may be called
    as often as you like, from any thread and from processes that were forked. Outside of a pool it does nothing.
    """
    global _said
    now = monotonic()
    if _state.progress is None or now - _said < _EVERY:
        return
    _said = now
    try:
        os.pwrite(_state.progress, time_ns().to_bytes(8, "little"), 0)
    except OSError:
        pass  # the payload has closed it, or the disk is full; there is output too
