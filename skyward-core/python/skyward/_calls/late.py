"""Futures that cannot be finished yet, because somebody holds their lock."""

from __future__ import annotations

import threading
from _thread import get_ident
from collections import deque
from time import sleep
from typing import TYPE_CHECKING, Final

from .._complaint import complain

if TYPE_CHECKING:
    from .frames import Frame
    from .future import Future

_PAUSE: Final = 0.02
"""Seconds until they are tried again."""


class Late:
    """Finishes them on a thread of its own, as soon as their locks are free; those of a caller that is over, never.

    Only what waits by means of `concurrent.futures` waits for that: the outcome is there.
    """

    def __init__(self, threads: dict[int, Frame]) -> None:
        """Begin with none.

        Args:
            threads: which thread calls for whom.
        """
        self._threads = threads
        self._lock = threading.Lock()
        self._futures: deque[Future] = deque()
        self._runs = False

    @property
    def is_busy(self) -> bool:
        """Whether there is one. Another one is not to be waited for, then."""
        return self._runs

    def add(self, future: Future) -> None:
        """Take one over."""
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
                    complain(f"a callback of a future has raised {error!r}")
            self._threads.pop(me, None)
            if self._futures:
                sleep(_PAUSE)
