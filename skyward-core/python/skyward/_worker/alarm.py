"""The process's timer, which a task may arm by `signal.setitimer` or `signal.alarm`."""

from __future__ import annotations

import signal
from time import monotonic
from typing import Any, Final

TIMER: Final = int(signal.ITIMER_REAL)
_SOON: Final = 1e-6
"""Seconds. Zero would disarm the timer."""


class Alarm:
    """The timer of the hooks around the app, if they have armed one; a task's timer ends with it.

    A timer that is armed after a task belongs to the hooks if they had one before and its handler
    is still the same: the handler may have armed the timer again meanwhile.
    """

    def __init__(self) -> None:
        """Start without a timer."""
        self.is_armed = False
        """Whether the hooks have armed a timer."""
        self._handler: Any = None
        self._due = 0.0
        self._interval = 0.0

    def note(self) -> None:
        """Record the timer that is armed now, if any: it belongs to the hooks."""
        left, self._interval = signal.getitimer(TIMER)
        self.is_armed = left > 0
        if self.is_armed:
            self._due = monotonic() + left
            self._handler = signal.getsignal(signal.SIGALRM)

    def end_task(self) -> None:
        """Disarm the timer that a task has armed, and arm that of the hooks again."""
        if self.is_armed and signal.getsignal(signal.SIGALRM) == self._handler:
            self.note()
            return
        signal.setitimer(TIMER, 0)
        if not self.is_armed:
            return
        if self._handler is not None:  # otherwise, native code has set it
            signal.signal(signal.SIGALRM, self._handler)
        left = self._due - monotonic()
        if left > 0 or self._interval:
            signal.setitimer(TIMER, max(left, _SOON), self._interval)
        self.note()
