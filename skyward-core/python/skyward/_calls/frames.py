"""Callers, and what waits for the calls that they have made."""

from __future__ import annotations

from _thread import allocate_lock
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .future import Future


class Frame:
    """One caller: a run, or a call that this worker runs while it waits within that run."""

    def __init__(self, run: int, help: int, depth: int) -> None:
        """Begin.

        Args:
            run: the run that the worker executes.
            help: the number of the helped call; 0 for the run itself.
            depth: the number of callers above.
        """
        self.run = run
        self.help = help
        self.depth = depth
        self.calls: dict[int, Future] = {}
        """The calls that it has made and that have no outcome."""
        self.cancelled = False
        self.interrupted = False
        """Whether the interrupt was raised. What its code does after that is its own."""
        self.ended = False


class AsideFrame(Frame):
    """A helped call on a thread of its own, which is interrupted only while its own code runs."""

    def __init__(self, run: int, help: int, depth: int) -> None:
        super().__init__(run, help, depth)
        self.thread = 0
        self.waits: Awaiting | None = None
        self._guard = allocate_lock()
        self._is_in_own_code = False

    def enter(self) -> None:
        """Leave the call's own code for that of this package.

        Raises:
            KeyboardInterrupt: it came at the last moment.
        """
        with self._guard:
            self._is_in_own_code = False
        # An exception that was set before is raised when a function is entered or a loop goes on.
        for _ in range(2):
            _breathe()

    def leave(self) -> None:
        """Go on with the call's own code.

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
        """Interrupt it, on another thread."""
        import ctypes

        with self._guard:
            self.cancelled = True
            if not self._is_in_own_code:
                if self.waits is not None:
                    self.waits.wake()
            elif not self.interrupted:
                self.interrupted = True
                thread, error = ctypes.c_ulong(self.thread), ctypes.py_object(KeyboardInterrupt)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, error)


def _breathe() -> None:
    """Do nothing."""


class Awaiting:
    """What a thread waits for: so many of some futures."""

    def __init__(self, needed: int, stop: Callable[[Future], bool] | None = None) -> None:
        """Wait for nothing yet.

        Args:
            needed: how many futures have to be over.
            stop: tells of a future that is over whether it ends the wait by itself.
        """
        self.needed = needed
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
        """Take note of a future that is over."""
        self.done.append(future)
        if self._stop is not None and self._stop(future):
            self._stopped = True
        if self.ready:
            self.wake()

    def wake(self) -> None:
        """Have the thread look up. Signal handlers call this too."""
        try:
            self._lock.release()
        except RuntimeError:
            pass  # it is awake

    def sleep(self, seconds: float) -> None:
        """Sleep until `wake`; for less than `seconds` if they are not negative."""
        self._lock.acquire(timeout=seconds)
