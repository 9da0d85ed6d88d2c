"""A connection over two descriptors that came through a socket, so that nothing stands between them and the worker."""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import socket
from collections.abc import Callable, Sequence
from typing import Final

from ._values import Buffer

_ROOM: Final = 1 << 20
"""What a pipe is to hold, so that large values cross in fewer turns of both sides; where less is allowed, it does."""


class Pipes:
    """Reads from one descriptor and writes to the other, with the names that a socket has for it."""

    def __init__(self, incoming: int, outgoing: int, opened: socket.socket) -> None:
        """Take over two descriptors.

        Args:
            incoming: what the client sends.
            outgoing: what the client gets.
            opened: the socket through which they came; whoever handed them over waits for its end.
        """
        self.outgoing = outgoing
        self._incoming = incoming
        self._socket = opened
        for descriptor in (incoming, outgoing):
            os.set_blocking(descriptor, False)
            with contextlib.suppress(OSError, AttributeError):
                fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _ROOM)

    def fileno(self) -> int:
        """The descriptor that is read."""
        return self._incoming

    def recv_into(self, buffer: memoryview) -> int:
        """Read what is there.

        Raises:
            BlockingIOError: nothing is.
        """
        return os.readv(self._incoming, [buffer])

    def send(self, data: Buffer) -> int:
        """Write as much as fits.

        Raises:
            BlockingIOError: nothing does.
        """
        return os.write(self.outgoing, data)

    def sendmsg(self, parts: Sequence[Buffer]) -> int:
        """The same for several pieces.

        Raises:
            BlockingIOError: nothing fits.
        """
        return os.writev(self.outgoing, parts)

    def close(self) -> None:
        """Close all three."""
        os.close(self._incoming)
        os.close(self.outgoing)
        self._socket.close()


class Opening:
    """A new connection, whose first message may bring descriptors."""

    def __init__(self, opened: socket.socket) -> None:
        """Read from this socket."""
        self._socket = opened
        self._descriptors: list[int] = []
        self._more = False
        """More came than were taken."""

    def recv_into(self, buffer: memoryview) -> int:
        """Receive once, descriptors too.

        Raises:
            BlockingIOError: nothing is there.
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
        """The connection over the descriptors that came, if there were two.

        Args:
            move: gives a descriptor another number, and closes the first.
        """
        if len(self._descriptors) != 2 or self._more:
            self.close()
            return None
        incoming, outgoing = map(move, self._descriptors)
        self._descriptors = []
        return Pipes(incoming, outgoing, self._socket)

    def close(self) -> None:
        """Close descriptors that nobody took."""
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors = []
