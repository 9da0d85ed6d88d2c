"""Callers of calls, and threads that wait for them."""

from __future__ import annotations

import sys
import threading
from _thread import allocate_lock
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from .. import _modules

if TYPE_CHECKING:
    from .future import Future

_AGAIN: Final = 0.05
"""Seconds after which an interrupt is tried again that would have ruined an import."""


class Frame:
    """A caller: a run, or a call that this worker helps with while that run waits."""

    def __init__(self, run: int, help: int, depth: int) -> None:
        """Create a caller without calls.

        Args:
            run: the number of the worker's run.
            help: the number of the helped call; 0 for the run itself.
            depth: the number of callers above.
        """
        self.run = run
        self.help = help
        self.depth = depth
        self.calls: dict[int, Future] = {}
        """The calls that it has submitted and that have no outcome yet."""
        self.seed: int | None = None
        """What the random numbers of its calls follow from; None without a seed."""
        self.seeded = 0
        """The number of its calls that were given a seed."""
        self.cancelled = False
        self.interrupted = False
        """Whether an interrupt was raised in its code, which happens once."""
        self.ended = False
        self.answered = False
        """Whether the client gets an answer of this helped call."""


class AsideFrame(Frame):
    """A helped call on a thread of its own, which is interrupted only in its own code."""

    def __init__(self, run: int, help: int, depth: int) -> None:
        super().__init__(run, help, depth)
        self.thread = 0
        self.waits: Awaiting | None = None
        self._guard = allocate_lock()
        self._is_in_own_code = False
        self._is_due_again = False
        """Whether a timer calls `cancel` again."""

    def enter(self) -> None:
        """Leave the call's own code for this package's.

        Raises:
            KeyboardInterrupt: an interrupt arrived at the last moment.
        """
        with self._guard:
            self._is_in_own_code = False
        # A pending asynchronous exception is raised when a function is entered or a loop continues.
        for _ in range(2):
            _breathe()

    def leave(self) -> None:
        """Return to the call's own code.

        Raises:
            KeyboardInterrupt: the call was cancelled meanwhile.
        """
        with self._guard:
            due = self.cancelled and not self.interrupted
            if due:
                self.interrupted = True
            self._is_in_own_code = True
        if due:
            raise KeyboardInterrupt("the call was cancelled")

    def cancel(self) -> None:
        """Interrupt the call, from another thread; while it imports a library, after the import."""
        import ctypes

        with self._guard:
            self.cancelled = True
            if not self._is_in_own_code:
                if self.waits is not None:
                    self.waits.wake()
            elif not self.interrupted:
                if _modules.is_importing_library(sys._current_frames().get(self.thread)):
                    self._cancel_again()
                    return
                self.interrupted = True
                thread, error = ctypes.c_ulong(self.thread), ctypes.py_object(KeyboardInterrupt)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, error)

    def _cancel_again(self) -> None:
        if self._is_due_again:
            return
        timer = threading.Timer(_AGAIN, self._on_timer)
        timer.daemon = True
        with suppress(RuntimeError):  # no more threads: the client repeats the cancel of a call
            timer.start()
            self._is_due_again = True

    def _on_timer(self) -> None:
        self._is_due_again = False
        self.cancel()


def _breathe() -> None:
    """Do nothing; entering this function raises a pending exception."""


class Awaiting:
    """The condition of a wait: a number of futures must be done."""

    def __init__(self, needed: int, stop: Callable[[Future], bool] | None = None) -> None:
        """Create a condition without futures.

        Args:
            needed: the number of futures that must be done.
            stop: returns whether a future that is done ends the wait by itself.
        """
        self.needed = needed
        self.helps = False
        """Whether the main thread, which waits, runs calls meanwhile."""
        self.done: deque[Future] = deque()
        self._stop = stop
        self._stopped = False
        self._lock = allocate_lock()
        self._lock.acquire()

    @property
    def ready(self) -> bool:
        """Whether the wait is over."""
        return self._stopped or len(self.done) >= self.needed

    def add(self, future: Future) -> None:
        """Record a future that is done."""
        self.done.append(future)
        if self._stop is not None and self._stop(future):
            self._stopped = True
        if self.ready:
            self.wake()

    def wake(self) -> None:
        """Wake the waiting thread; also called by signal handlers."""
        try:
            self._lock.release()
        except RuntimeError:
            pass  # the thread is awake

    def sleep(self, seconds: float) -> None:
        """Sleep until `wake`, or for `seconds` unless they are negative."""
        self._lock.acquire(timeout=seconds)
