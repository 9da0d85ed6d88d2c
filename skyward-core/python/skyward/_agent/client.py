"""One connection of a client to the agent."""

from __future__ import annotations

import socket
from collections import deque
from typing import Any, Final

import msgspec

from .. import _wire
from .._messages import ToAgent

_MOST_QUEUED: Final = 4 << 20
"""A client that reads so slowly that this much waits for it is not read from either."""
_MOST_LOGS: Final = 1 << 20
"""No more output is read from the files while this much waits for the client."""
MAX_BODY: Final = 64 << 20
"""A start spec is the largest body that an agent takes."""


_decode_message: Final = msgspec.msgpack.Decoder(ToAgent).decode


class Connection:
    """A socket, what has arrived on it, and what waits to be sent."""

    def __init__(self, opened: socket.socket) -> None:
        opened.setblocking(False)
        self.socket = opened
        self.reader = _wire.FrameReader(MAX_BODY, _decode_message)
        self.greeted = False
        self.closing = False
        """Close as soon as what waits is sent."""
        self._waiting: deque[memoryview] = deque()
        self._bytes = 0

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self.socket.fileno()

    @property
    def wants_write(self) -> bool:
        """Whether something waits to be sent."""
        return bool(self._waiting)

    @property
    def may_read(self) -> bool:
        """Whether more requests are taken."""
        return not self.closing and self._bytes < _MOST_QUEUED

    @property
    def may_log(self) -> bool:
        """Whether there is room for output."""
        return self._bytes < _MOST_LOGS

    def send(self, head: list[Any], body: bytes = b"") -> None:
        """Queue a frame, and send at once what the socket takes.

        Raises:
            OSError: the connection is broken.
        """
        data = memoryview(_wire.frame(head, body))
        self._waiting.append(data)
        self._bytes += len(data)
        self.flush()

    def flush(self) -> None:
        """Send what the socket takes.

        Raises:
            OSError: the connection is broken.
        """
        waiting = self._waiting
        try:
            while waiting:
                sent = self.socket.send(waiting[0])
                self._bytes -= sent
                if sent == len(waiting[0]):
                    waiting.popleft()
                else:
                    waiting[0] = waiting[0][sent:]
        except BlockingIOError:
            pass

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()
