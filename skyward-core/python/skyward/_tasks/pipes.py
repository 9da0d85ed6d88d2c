"""A connection over two descriptors that arrived through a socket.

This way no other process is between the client and the worker.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import socket
from collections.abc import Callable, Sequence
from typing import Final

from .._values.codec import Buffer

_ROOM: Final = 1 << 20
"""The requested capacity of a pipe in bytes, so that large values need fewer reads and writes. A
smaller limit of the system works too.
"""


class Pipes:
    """Reads from one descriptor and writes to another, with the methods of a socket."""

    def __init__(self, incoming: int, outgoing: int, opened: socket.socket) -> None:
        """Take over two descriptors.

        Args:
            incoming: the descriptor to read from.
            outgoing: the descriptor to write to.
            opened: the socket through which they arrived. Its end tells the sender when the
                connection ends.
        """
        self.outgoing = outgoing
        self._incoming = incoming
        self._socket = opened
        for descriptor in (incoming, outgoing):
            os.set_blocking(descriptor, False)
            with contextlib.suppress(OSError, AttributeError):
                fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _ROOM)

    def fileno(self) -> int:
        """Return the descriptor that is read."""
        return self._incoming

    def recv_into(self, buffer: memoryview) -> int:
        """Read what is available.

        Raises:
            BlockingIOError: nothing is available.
        """
        return os.readv(self._incoming, [buffer])

    def send(self, data: Buffer) -> int:
        """Write as much as fits.

        Raises:
            BlockingIOError: nothing fits.
        """
        return os.write(self.outgoing, data)

    def sendmsg(self, parts: Sequence[Buffer]) -> int:
        """Write as much of several buffers as fits.

        Raises:
            BlockingIOError: nothing fits.
        """
        return os.writev(self.outgoing, parts)

    def close(self) -> None:
        """Close both descriptors and the socket."""
        os.close(self._incoming)
        os.close(self.outgoing)
        self._socket.close()


class Opening:
    """A new connection, whose first message may carry descriptors."""

    def __init__(self, opened: socket.socket) -> None:
        """Read from this socket."""
        self._socket = opened
        self._descriptors: list[int] = []
        self._more = False
        """Whether more descriptors arrived than were received."""

    def recv_into(self, buffer: memoryview) -> int:
        """Receive data and descriptors once.

        Raises:
            BlockingIOError: nothing is available.
        """
        count, ancillary, flags, _ = self._socket.recvmsg_into(
            [buffer], socket.CMSG_SPACE(2 * array.array("i").itemsize)
        )
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                came = array.array("i")
                came.frombytes(data[: len(data) - len(data) % came.itemsize])
                self._descriptors.extend(came)
        self._more = self._more or bool(flags & socket.MSG_CTRUNC)
        return count

    def pipes(self, move: Callable[[int], int]) -> Pipes | None:
        """Return a connection over the descriptors, if exactly two have arrived.

        Args:
            move: moves a descriptor to another number, and closes the original.
        """
        if len(self._descriptors) != 2 or self._more:
            self.close()
            return None
        incoming, outgoing = map(move, self._descriptors)
        self._descriptors = []
        return Pipes(incoming, outgoing, self._socket)

    def close(self) -> None:
        """Close the descriptors that were not used."""
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors = []
