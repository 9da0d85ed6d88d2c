"""Stream the output of workers from their files to the client that subscribed to it."""

from __future__ import annotations

import os
from typing import Final

from .._core import wire
from .client import Connection
from .process import Worker

CHUNK: Final = 256 << 10
SOON: Final = 0.010
LATE: Final = 0.200


class Tail:
    """One client's position in the two output files of one worker."""

    def __init__(self, worker: Worker, offsets: tuple[int, int]) -> None:
        self.worker = worker
        self.offsets = list(offsets)
        self.done = False
        self._files = [os.open(spool.path, os.O_RDONLY | os.O_CLOEXEC) for spool in worker.spools]
        self._progress_file = os.open(worker.progress_path, os.O_RDONLY | os.O_CLOEXEC)
        self._progress = b""

    def advance(self, connection: Connection) -> bool:
        """Send new output, and the log's end if the worker has ended; return whether there was any.

        Raises:
            OSError: the connection is broken.
        """
        worker = self.worker
        # Read `ended` before the files: a later process of this worker may write to them too.
        ended = worker.ended is not None
        active = self.send(connection)
        if ended and connection.may_log and not self.done:
            self.done = True
            connection.send([wire.LOG_END, worker.generation, worker.index, *self.offsets])
        return active

    def send(self, connection: Connection) -> bool:
        """Send new output and progress; return whether there was new output.

        Raises:
            OSError: the connection is broken.
        """
        worker = self.worker
        active = False
        for stream, (file, spool) in enumerate(zip(self._files, worker.spools, strict=True)):
            while connection.may_log:
                offset = self.offsets[stream]
                if offset < spool.start:
                    data = spool.note(offset)
                    offset = spool.start - len(data)
                else:
                    data = os.pread(file, CHUNK, offset)
                if not data:
                    break
                active = True
                self.offsets[stream] = spool.sent = offset + len(data)
                connection.send([wire.LOG, worker.generation, worker.index, stream + 1, offset], data)
                spool.give_back()
        progress = os.pread(self._progress_file, 8, 0)
        if progress != self._progress:
            self._progress = progress
            connection.send([wire.PROGRESS, worker.generation, worker.index])
        return active

    def close(self) -> None:
        """Close the files."""
        for file in (*self._files, self._progress_file):
            os.close(file)
        self._files = []


class Tails:
    """All subscriptions of one client.

    The files are read often while there is output, and seldom while there is none.
    """

    def __init__(self) -> None:
        self._tails: dict[tuple[int, int], Tail] = {}
        self._interval = SOON

    def subscribe(self, worker: Worker, offsets: tuple[int, int]) -> None:
        """Follow a worker's output from these offsets on."""
        key = (worker.generation, worker.index)
        old = self._tails.pop(key, None)
        if old is not None:
            old.close()
        self._tails[key] = Tail(worker, offsets)
        self._interval = SOON

    def follow(self, worker: Worker) -> None:
        """Continue a subscription after its worker was started again; the files are the same."""
        tail = self._tails.get((worker.generation, worker.index))
        if tail is not None:
            tail.worker, tail.done = worker, False
            self._interval = SOON

    def advance(self, connection: Connection) -> None:
        """Send all new output.

        Raises:
            OSError: the connection is broken.
        """
        active = [tail.advance(connection) for tail in self._tails.values() if not tail.done]
        self._interval = SOON if any(active) else min(self._interval * 1.5, LATE)

    def send(self, generation: int, index: int, connection: Connection) -> None:
        """Send the new output of one worker at once.

        Raises:
            OSError: the connection is broken.
        """
        tail = self._tails.get((generation, index))
        if tail is not None and not tail.done and tail.send(connection):
            self._interval = SOON

    def wait(self, connection: Connection) -> float | None:
        """Return the seconds until the next read; None if none is due or the client is slow."""
        if not connection.may_log or all(tail.done for tail in self._tails.values()):
            return None
        return self._interval

    def close(self) -> None:
        """End all subscriptions."""
        for tail in self._tails.values():
            tail.close()
        self._tails = {}
