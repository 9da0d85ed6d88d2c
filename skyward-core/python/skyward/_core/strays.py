"""Threads that still execute code of a run that has ended.

What a thread pool does next belongs to the next run, but what it is executing at the end of a run
does not. So, at the end of a run, this module finds the outermost function of a payload on the
stack of each other thread. While the thread executes that function, it belongs to the run that has
ended.
"""

from __future__ import annotations

import sys
from _thread import get_ident
from types import FrameType

from .modules import is_payload_file

threads: dict[int, FrameType] = {}
"""By thread, the outermost payload frame at the end of the last run."""


def note() -> None:
    """Record the threads that still execute code of a run that ends; the main thread calls this."""
    me = get_ident()
    found = {}
    for thread, frame in sys._current_frames().items():
        outermost = None if thread == me else _outermost(frame)
        if outermost is not None:
            found[thread] = outermost
    # Drop old entries: those functions have ended, and their frames must not be kept alive.
    threads.clear()
    threads.update(found)


def begun() -> str | None:
    """Return the name of an ended run's function that this thread still executes, or None."""
    me = get_ident()
    noted = threads.get(me)
    if noted is None:
        return None
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame is noted:
            return noted.f_code.co_name
        frame = frame.f_back
    threads.pop(me, None)
    return None


def _outermost(frame: FrameType | None) -> FrameType | None:
    found = None
    while frame is not None:
        if is_payload_file(frame.f_code.co_filename):
            found = frame
        frame = frame.f_back
    return found
