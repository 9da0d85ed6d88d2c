"""What a thread waits for: the ends of calls."""

from __future__ import annotations

from _thread import allocate_lock
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

Call = TypeVar("Call")
"""What stands for a call."""


class Awaiting(Generic[Call]):
    """The condition of a wait: a number of futures must be done."""

    def __init__(self, needed: int, stop: Callable[[Call], bool] | None = None) -> None:
        """Create a condition without futures.

        Args:
            needed: the number of futures that must be done.
            stop: returns whether a future that is done ends the wait by itself.
        """
        self.needed = needed
        self.helps = False
        """Whether the main thread, which waits, runs calls meanwhile."""
        self.done: deque[Call] = deque()
        self._stop = stop
        self._stopped = False
        self._lock = allocate_lock()
        self._lock.acquire()

    @property
    def ready(self) -> bool:
        """Whether the wait is over."""
        return self._stopped or len(self.done) >= self.needed

    def add(self, future: Call) -> None:
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
