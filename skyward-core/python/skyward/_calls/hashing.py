"""The hash that names a file of the store: SHA-256 over the SHA-256 hashes of its pieces of 1 MiB.

Because each piece has a hash of its own, threads hash and write a large array at the same time.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from hashlib import sha256
from io import FileIO
from typing import Final

from .._values.codec import Buffer
from .handlers import ignored

_PIECE: Final = 1 << 20
"""Bytes of a piece."""
_FEW: Final = 8
"""The number of pieces up to which another thread would not pay."""
_MOST_THREADS: Final = 4
"""More threads would take the cores of other workers, and memory is soon the limit."""


class Hash:
    """The hash of bytes that arrive one part after another."""

    def __init__(self) -> None:
        """Start with no bytes."""
        self._whole = sha256()
        self._piece = sha256()
        self._room = _PIECE

    def update(self, data: Buffer) -> None:
        """Add bytes."""
        view = memoryview(data)
        while view:
            part, view = view[: self._room], view[self._room :]
            self._piece.update(part)
            self._room -= len(part)
            if not self._room:
                self._whole.update(self._piece.digest())
                self._piece, self._room = sha256(), _PIECE

    def hexdigest(self) -> str:
        """Return the hash of all bytes so far, in hexadecimal digits."""
        whole = self._whole.copy()
        if self._room < _PIECE:
            whole.update(self._piece.digest())
        return whole.hexdigest()


def hash_of(data: memoryview, file: FileIO | None = None) -> str:
    """Return the hash of bytes, on several threads if they are many, and write them to a file.

    If another thread changes the bytes meanwhile, the hash is that of the bytes that are written.

    Args:
        data: the bytes.
        file: where they are written, from its beginning; None to write nothing.

    Raises:
        OSError: the file cannot be written.
    """
    starts = range(0, len(data), _PIECE)
    hashes = [b""] * len(starts)
    # `popleft` is atomic, so that each piece belongs to one thread. Each thread ends at a None.
    left: deque[int | None] = deque([*starts, *[None] * _MOST_THREADS])
    failures: list[Exception] = []

    def work() -> None:
        while (start := left.popleft()) is not None:
            piece: Buffer = data[start : start + _PIECE]
            if file is not None:
                piece = bytes(piece)
                _write(file, piece, start)
            hashes[start // _PIECE] = sha256(piece).digest()

    def help_work() -> None:
        try:
            work()
        except Exception as error:  # raised below, on the thread of the caller
            failures.append(error)

    threads: list[threading.Thread] = []
    try:
        if len(starts) > _FEW:
            with ignored(RuntimeError):  # the system starts no more threads
                for _ in range(min(os.cpu_count() or 1, _MOST_THREADS) - 1):
                    thread = threading.Thread(target=help_work, name="skyward-store", daemon=True)
                    thread.start()
                    threads.append(thread)
        work()
        for thread in threads:
            thread.join()
    finally:
        # After an interrupt or a failure, the other threads end with the piece that they have. They
        # keep the bytes and the file open until then.
        left.clear()
    if failures:
        raise failures[0]
    whole = sha256()
    for piece_hash in hashes:
        whole.update(piece_hash)
    return whole.hexdigest()


def _write(file: FileIO, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(file.fileno(), view, offset)
        view, offset = view[written:], offset + written
