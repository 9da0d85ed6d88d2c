"""The program of a mover: `python -m skyward.mover`. The agent starts one when a client needs it."""

from __future__ import annotations

# isort: off
from ._core import startup

# isort: on
import os
import socket
import threading
from time import monotonic, sleep
from typing import Final, NoReturn

from ._core import artifacts, wire
from ._core.complaint import complain
from ._core.descriptors import PAUSE
from ._mover.connection import Connection

_MOST: Final = 64
"""The most connections at a time."""
_IDLE: Final = 600.0
"""Seconds without a request after which a connection gives way to a new one, if there are too many."""


class Mover:
    """Serves the connections of one pool's clients, each on a thread of its own."""

    def __init__(self, listener: socket.socket, pool: str) -> None:
        """Serve nobody yet.

        Args:
            listener: the socket on which clients connect.
            pool: the id of the pool to which clients must belong.
        """
        self._listener = listener
        self._pool = pool
        self._lock = threading.Lock()
        self._connections: set[Connection] = set()

    def run(self) -> NoReturn:
        """Serve until the process ends."""
        while True:
            try:
                opened, _ = self._listener.accept()
            except OSError:
                # Mostly no descriptor is free, and the listener stays readable until one is.
                sleep(PAUSE)
                continue
            try:
                self._accept(opened)
            except (RuntimeError, MemoryError):
                # There is no room for another thread.
                opened.close()
                sleep(PAUSE)

    def _accept(self, opened: socket.socket) -> None:
        connection = Connection(opened, self._pool)
        if not self._begin(connection):
            connection.refuse(wire.ProtocolError(f"{_MOST} connections to this mover are open, and it serves no more"))
            return
        try:
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
        except BaseException:
            self._end(connection)
            raise

    def _serve(self, connection: Connection) -> None:
        try:
            connection.serve()
        finally:
            self._end(connection)

    def _begin(self, connection: Connection) -> bool:
        """Count one more connection; return False if there are too many."""
        with self._lock:
            if len(self._connections) >= _MOST:
                now = monotonic()
                since, idle = min(
                    ((each.idle_since or now, each) for each in self._connections), key=lambda pair: pair[0]
                )
                if now - since < _IDLE:
                    return False
                # Its client may be gone without a word. One that is there connects again.
                self._connections.remove(idle)
                idle.shut()
            self._connections.add(connection)
            return True

    def _end(self, connection: Connection) -> None:
        with self._lock:
            self._connections.discard(connection)


def _tidy() -> None:
    """Remove what workers that have ended have left of their artifacts."""
    for name, error in artifacts.sweep(artifacts.FOLDER).items():
        complain(f"the incomplete artifact {name} cannot be removed: {error}")


def main() -> None:
    """Run the mover. The listener and the pool, as hexadecimal digits, are in the environment."""
    startup.restore()
    pool = bytes.fromhex(os.environ.pop("SKYWARD_POOL")).decode()
    listener = socket.socket(fileno=int(os.environ.pop("SKYWARD_LISTEN_FD")))
    threading.Thread(target=_tidy, daemon=True).start()
    Mover(listener, pool).run()


if __name__ == "__main__":
    main()
