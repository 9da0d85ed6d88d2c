"""Futures that cannot be completed yet, because their lock is held."""

from __future__ import annotations

import threading
from _thread import get_ident
from collections import deque
from time import sleep
from typing import Final

from .._core.complaint import complain
from .frames import Frame, Pending

_PAUSE: Final = 0.02
"""Seconds between two attempts."""


class Late:
    """Completes futures on a thread of its own, when their locks are free.

    Futures of a caller that has ended are dropped. Only code that waits by `concurrent.futures` is
    affected: the outcome itself is set.
    """

    def __init__(self, threads: dict[int, Frame]) -> None:
        """Start without futures.

        Args:
            threads: the callers by thread.
        """
        self._threads = threads
        self._lock = threading.Lock()
        self._futures: deque[Pending] = deque()
        self._runs = False

    @property
    def is_busy(self) -> bool:
        """Whether futures are waiting. Then a new future should not wait for its lock either."""
        return self._runs

    def add(self, future: Pending) -> None:
        """Add a future."""
        with self._lock:
            self._futures.append(future)
            if self._runs:
                return
            threading.Thread(target=self._run, name="skyward late futures", daemon=True).start()
            self._runs = True

    def _run(self) -> None:
        me = get_ident()
        while True:
            with self._lock:
                futures, self._futures = self._futures, deque()
                if not futures:
                    self._runs = False
                    return
            for future in futures:
                self._threads[me] = future._frame
                try:
                    if not future._finish(0) and not future._frame.ended:
                        self._futures.append(future)
                except BaseException as error:
                    complain(f"a callback of a future raised {error!r}")
            self._threads.pop(me, None)
            if self._futures:
                sleep(_PAUSE)
