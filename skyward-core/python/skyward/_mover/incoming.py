"""Files that arrive in pieces. Each is hashed on the way, so that a file that comes in order is not read again."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from .files import Refused, named, shown

if TYPE_CHECKING:
    from hashlib import _Hash

_BUFFER: Final = 1 << 20
_WRITE: Final = 256 << 10
"""The most bytes of one write. For larger ones, Linux allocates large pieces of memory: in a virtual
machine that gets memory at its first use, they took four to seven times as long.
"""
_OPEN: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

OnWork = Callable[[], None]
"""Is called again and again while something takes its time."""


def nothing() -> None:
    """Do nothing while something takes its time."""


class Incoming:
    """A file of which a manifest lists the size and the digest."""

    def __init__(self, path: bytes, size: int, sha256: str) -> None:
        """Expect a file.

        Args:
            path: its path in the manifest, for messages.
            size: how many bytes it will have.
            sha256: its digest, in hexadecimal digits.
        """
        self._path = path
        self._size = size
        self._sha256 = sha256
        self._hashed = 0
        """How many of its first bytes are in `_hash`."""
        self._hash: _Hash | None = hashlib.sha256()
        """The SHA-256 of what was written; None if it was not written from its beginning to its end."""

    @property
    def has_all(self) -> bool:
        """Whether it was written from its beginning to its end."""
        return self._hash is not None and self._hashed == self._size

    def unhashed(self, offset: int, length: int) -> int:
        """Return how many bytes at the end of a piece are not hashed yet: a repeated piece has none."""
        return length if self._hash is None else min(length, max(0, offset + length - self._hashed))

    def fits(self, offset: int, length: int) -> None:
        """Refuse a piece that is not within the file."""
        if offset + length > self._size:
            words = f"{shown(self._path)} has {self._size} bytes, and the piece ends at {offset + length}"
            raise Refused("invalid", words)

    def write(self, whole: bytes, offset: int, piece: memoryview, flags: int = 0) -> None:
        """Write a piece.

        Args:
            whole: the path on the node.
            offset: where the piece begins.
            piece: its bytes.
            flags: how the file is opened, besides for writing.

        Raises:
            Refused: it cannot be written.
        """
        with named(whole):
            descriptor = os.open(whole, os.O_WRONLY | _OPEN | flags, 0o600)
            try:
                _write(descriptor, piece, offset)
            finally:
                os.close(descriptor)
        if self._hash is not None and offset == self._hashed:
            self._hash.update(piece)
            self._hashed += len(piece)
        else:
            self._hash = None

    def check(self, whole: bytes, on_work: OnWork) -> None:
        """Refuse the file if it is not as it is listed."""
        with named(whole):
            size = os.lstat(whole).st_size
        if size != self._size:
            raise Refused("changed", f"{shown(self._path)} has {size} of {self._size} bytes")
        is_hashed = self._hash is not None and self._hashed == size
        digest = self._hash.hexdigest() if self._hash is not None and is_hashed else sha256_of(whole, on_work)
        if digest != self._sha256:
            raise Refused("changed", f"{shown(self._path)} has the SHA-256 {digest}, and {self._sha256} is listed")


def _write(descriptor: int, piece: memoryview, offset: int) -> None:
    while piece:
        count = os.pwrite(descriptor, piece[:_WRITE], offset)
        piece, offset = piece[count:], offset + count


def sha256_of(path: bytes, on_work: OnWork) -> str:
    """Return the digest of a file.

    Raises:
        Refused: it cannot be read.
    """
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(_BUFFER))
    with named(path):
        descriptor = os.open(path, os.O_RDONLY | _OPEN)
        try:
            while count := os.readv(descriptor, [buffer]):
                digest.update(buffer[:count])
                on_work()
        finally:
            os.close(descriptor)
    return digest.hexdigest()
