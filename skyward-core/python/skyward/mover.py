"""The program of a mover: `python -m skyward.mover`. The agent starts one when a client needs it."""

from __future__ import annotations

# isort: off
from ._core import startup

# isort: on
import os
import socket
import threading
from time import sleep
from typing import Final, NoReturn

from ._core.descriptors import PAUSE
from ._mover.connection import Connection

_MOST: Final = 64
"""The most connections at a time."""


class Mover:
    """Serves the connections of one pool's clients, each on a thread of its own."""

    def __init__(self, listener: socket.socket) -> None:
        """Serve nobody yet.

        Args:
            listener: the socket on which clients connect.
        """
        self._listener = listener
        self._lock = threading.Lock()
        self._pool: str | None = None
        self._connections = 0

    def run(self) -> NoReturn:
        """Serve until the process ends."""
        while True:
            try:
                opened, _ = self._listener.accept()
            except OSError:
                # Mostly no descriptor is free, and the listener stays readable until one is.
                sleep(PAUSE)
                continue
            if not self._begin():
                opened.close()
                continue
            try:
                threading.Thread(target=self._serve, args=(opened,), daemon=True).start()
            except (RuntimeError, MemoryError):
                # There is no room for another thread.
                opened.close()
                self._end()
                sleep(PAUSE)

    def _serve(self, opened: socket.socket) -> None:
        try:
            with opened:
                Connection(opened, self._belongs_to).serve()
        finally:
            self._end()

    def _begin(self) -> bool:
        """Count one more connection; return False if there are too many."""
        with self._lock:
            is_possible = self._connections < _MOST
            self._connections += is_possible
            return is_possible

    def _end(self) -> None:
        with self._lock:
            self._connections -= 1

    def _belongs_to(self, pool: str) -> str:
        """Return the pool of this mover, which is that of the first client that greets."""
        with self._lock:
            if self._pool is None:
                self._pool = pool
            return self._pool


def main() -> None:
    """Run the mover. The listener is in the environment."""
    startup.restore()
    Mover(socket.socket(fileno=int(os.environ.pop("SKYWARD_LISTEN_FD")))).run()


if __name__ == "__main__":
    main()
