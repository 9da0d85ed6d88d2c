"""`sky.progress`: how a payload reports that it is making progress."""

from __future__ import annotations

import os
from time import monotonic, time_ns
from typing import Final

from .._core import state

_EVERY: Final = 0.05
"""Seconds. More frequent reports carry no more information, and are dropped."""
_said = 0.0


def progress() -> None:
    """Report that the task is making progress, for a pool with a stall limit (`Limits::stall`).

    Such a pool ends a gang that shows no sign of progress for too long. Printing, yielding an item
    and returning are such signs; a long silent computation should call this function. It is cheap,
    may be called as often as you like, from any thread and from forked processes. Outside a pool it
    does nothing.
    """
    global _said
    now = monotonic()
    if state.progress is None or now - _said < _EVERY:
        return
    _said = now
    try:
        os.pwrite(state.progress, time_ns().to_bytes(8, "little"), 0)
    except OSError:
        pass  # the payload has closed the file, or the disk is full; output counts as progress too
