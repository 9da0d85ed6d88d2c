"""Threads that go on with what a run has begun when that run is over.

What a thread of a pool does next is the next run's; what it is in the middle of is not. So, when a run ends, each
other thread is looked at for the outermost function of a payload that it executes. For as long as it does, it
belongs to a run that has ended.
"""

from __future__ import annotations

import sys
from _thread import get_ident
from types import FrameType

from . import _payload

threads: dict[int, FrameType] = {}
"""What threads were in the middle of when the last run ended."""


def note() -> None:
    """A run is over: take note of the threads that go on with it. The main thread calls this."""
    files = _payload.files()
    me = get_ident()
    found = {}
    for thread, frame in sys._current_frames().items():
        outermost = None if thread == me else _outermost(frame, files)
        if outermost is not None:
            found[thread] = outermost
    # What is not found any more has ended, and what it has referred to is not to be kept.
    threads.clear()
    threads.update(found)


def begun() -> str | None:
    """The name of the function that this thread goes on with though its run has ended; None if it does not."""
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


def _outermost(frame: FrameType | None, files: set[str]) -> FrameType | None:
    found = None
    while frame is not None:
        if frame.f_code.co_filename in files:
            found = frame
        frame = frame.f_back
    return found
