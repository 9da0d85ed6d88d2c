"""The program of a mover: `python -m skyward.mover`. The agent starts one when a client needs it."""

from __future__ import annotations

# isort: off
from ._core import startup

# isort: on
import os
import socket
import threading
import traceback
from time import monotonic, sleep
from typing import Final, NoReturn

from ._core import artifacts, wire
from ._core.complaint import complain
from ._core.descriptors import PAUSE
from ._mover.connection import Connection
from ._mover.data_sets import DataSets
from ._mover.messages import Hello, WorkerHello
from ._mover.outbox import Outbox
from ._mover.peer import Gone, Peer
from ._mover.relay import Relay
from ._mover.restored import Restored
from ._mover.worker_connection import WorkerConnection

_MOST: Final = 64
"""The most connections of clients at a time."""
_MOST_WORKERS: Final = 1024
"""The most connections of workers at a time."""
_MOST_OPEN: Final = _MOST + _MOST_WORKERS + 64
"""The most connections at a time, with those that have not greeted yet."""
_IDLE: Final = 600.0
"""Seconds without a request after which a connection gives way to a new one, if there are too many."""


class Mover:
    """Serves the connections of one pool's clients and of the node's workers, each on a thread of its own."""

    def __init__(self, listener: socket.socket, pool: str, home: str, channels: int = 0) -> None:
        """Serve nobody yet.

        Args:
            listener: the socket on which clients and workers connect.
            pool: the id of the pool to which clients must belong.
            home: the absolute path of the node's folder.
            channels: a number below that of the first channel of a worker, and above those of earlier movers.
        """
        self._listener = listener
        self._pool = pool
        self._home = home
        self._outbox = Outbox(home)
        self._relay = Relay(self._outbox, channels)
        self._restored = Restored(home)
        self._data = DataSets(home)
        self._lock = threading.Lock()
        self._open: set[Peer] = set()
        self._clients: set[Peer] = set()
        self._workers: set[Peer] = set()

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
                self.accept(opened)
            except (RuntimeError, MemoryError):
                # There is no room for another thread.
                opened.close()
                sleep(PAUSE)

    def accept(self, opened: socket.socket) -> None:
        """Serve a connection on a thread of its own.

        Raises:
            RuntimeError: there is no room for another thread.
        """
        peer = Peer(opened)
        with self._lock:
            is_full = len(self._open) >= _MOST_OPEN
            if not is_full:
                self._open.add(peer)
        if is_full:
            peer.refuse(_too_many(_MOST_OPEN, "connections"))
            return
        try:
            threading.Thread(target=self.serve, args=(peer,), daemon=True).start()
        except BaseException:
            self._end(peer)
            raise

    def serve(self, peer: Peer) -> None:
        """Serve a connection until its peer ends it, breaks the protocol, or does not read."""
        try:
            self._serve(peer)
        except (Gone, OSError):
            pass  # the peer is gone, or does not read
        except Exception:
            complain(f"the mover ends a connection: {traceback.format_exc()}")
        finally:
            self._end(peer)
            peer.close()

    def tidy(self) -> None:
        """Remove what workers and movers that have ended have left incomplete."""
        for name, error in artifacts.sweep(artifacts.FOLDER).items():
            complain(f"the incomplete artifact {name} cannot be removed: {error}")
        self._restored.sweep()
        self._outbox.sweep()

    def _serve(self, peer: Peer) -> None:
        messages = peer.messages()
        served: Connection | WorkerConnection | None = None
        try:
            for message, body in messages:
                if served is not None:
                    served.answer(message, body)
                elif isinstance(message, Hello):
                    served = Connection(peer, self._pool, self._relay, self._restored, self._data)
                    served.check(message)
                    self._admit_client(peer)
                    served.greet()
                elif isinstance(message, WorkerHello):
                    self._admit_worker(peer)
                    served = WorkerConnection(peer, message, self._home, self._relay, self._outbox)
                else:
                    number = int(message.__struct_config__.tag or 0)
                    raise wire.ProtocolError("the first message must be Hello", number)
        except wire.ProtocolError as error:
            peer.refuse(error)
        finally:
            if served is not None:
                served.end()

    def _admit_client(self, peer: Peer) -> None:
        """Count one more client.

        Raises:
            ProtocolError: there are too many.
        """
        with self._lock:
            if len(self._clients) >= _MOST:
                now = monotonic()
                since, idle = min(((each.idle_since or now, each) for each in self._clients), key=lambda pair: pair[0])
                if now - since < _IDLE:
                    raise _too_many(_MOST, "connections")
                # Its client may be gone without a word. One that is there connects again.
                self._clients.remove(idle)
                idle.shut()
            self._clients.add(peer)

    def _admit_worker(self, peer: Peer) -> None:
        """Count one more worker.

        Raises:
            ProtocolError: there are too many.
        """
        with self._lock:
            if len(self._workers) >= _MOST_WORKERS:
                raise _too_many(_MOST_WORKERS, "connections of workers")
            self._workers.add(peer)

    def _end(self, peer: Peer) -> None:
        with self._lock:
            for peers in (self._open, self._clients, self._workers):
                peers.discard(peer)


def _too_many(most: int, what: str) -> wire.ProtocolError:
    return wire.ProtocolError(f"{most} {what} to this mover are open, and it serves no more")


def main() -> None:
    """Run the mover. The listener and the pool, as hexadecimal digits, are in the environment."""
    startup.restore()
    pool = bytes.fromhex(os.environ.pop("SKYWARD_POOL")).decode()
    listener = socket.socket(fileno=int(os.environ.pop("SKYWARD_LISTEN_FD")))
    # The agent starts it in the node's folder.
    mover = Mover(listener, pool, os.getcwd(), channels=int.from_bytes(os.urandom(5), "little") << 16)
    threading.Thread(target=mover.tidy, daemon=True).start()
    mover.run()


if __name__ == "__main__":
    main()
