"""Frames that are sent to a peer by a thread of their own, so that nobody else waits for that peer."""

from __future__ import annotations

import threading
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any

from .._core.complaint import complain
from .peer import Gone, Peer

Frame = tuple[list[Any], bytes]
"""A head and a body."""


class Outlet:
    """Sends frames in the order in which they were put. If the peer does not take one, its connection ends."""

    def __init__(self, peer: Peer) -> None:
        """Begin to send.

        Raises:
            RuntimeError: there is no room for another thread.
        """
        self._peer = peer
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Callable[[], Frame | None], int]] = deque()
        self._bytes = 0
        self._has_ended = False
        threading.Thread(target=self._run, daemon=True).start()

    def put(self, make: Callable[[], Frame | None], size: int = 0) -> None:
        """Send what this makes when all before it was sent, unless that is None.

        Args:
            make: makes the frame, on the thread that sends it.
            size: what it counts in `load`.
        """
        with self._changed:
            self._waiting.append((make, size))
            self._bytes += size
            self._changed.notify()

    def load(self) -> tuple[int, int]:
        """Return how many frames wait, and the sum of their sizes."""
        with self._changed:
            return len(self._waiting), self._bytes

    def end(self) -> None:
        """End the connection. What waits is not sent."""
        with self._changed:
            self._has_ended = True
            self._changed.notify()
        self._peer.shut()

    def _run(self) -> None:
        try:
            while make := self._next():
                frame = make()
                if frame is not None:
                    self._peer.send(*frame)
        except Gone:
            pass
        except Exception:
            complain(f"the mover cannot send to a peer: {traceback.format_exc()}")
        finally:
            self._peer.shut()

    def _next(self) -> Callable[[], Frame | None] | None:
        with self._changed:
            while not self._waiting and not self._has_ended:
                self._changed.wait()
            if self._has_ended:
                self._waiting.clear()
                return None
            make, size = self._waiting.popleft()
            self._bytes -= size
            return make
