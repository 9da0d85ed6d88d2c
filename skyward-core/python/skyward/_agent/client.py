"""One connection of a client to the agent."""

from __future__ import annotations

import socket
from collections import deque
from typing import Any, Final

import msgspec

from .._core import wire
from .._core.messages import ToAgent

_MOST_QUEUED: Final = 4 << 20
"""Bytes that may wait for a slow client. Above this, the agent reads no more requests from it."""
_MOST_LOGS: Final = 1 << 20
"""Bytes that may wait for a slow client. Above this, the agent reads no more worker output."""
MAX_BODY: Final = 64 << 20
"""The largest body that an agent accepts. A start spec is the largest body that a client sends."""


_decode_message: Final = msgspec.msgpack.Decoder(ToAgent).decode


class Connection:
    """A connection of a client: its socket, the bytes that arrived, and the frames to be sent."""

    def __init__(self, opened: socket.socket) -> None:
        opened.setblocking(False)
        self.socket = opened
        self.reader = wire.FrameReader(MAX_BODY, _decode_message)
        self.greeted = False
        self.closing = False
        """Whether to close the socket as soon as all queued bytes are sent."""
        self._waiting: deque[memoryview] = deque()
        self._bytes = 0

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self.socket.fileno()

    @property
    def wants_write(self) -> bool:
        """Whether bytes wait to be sent."""
        return bool(self._waiting)

    @property
    def may_read(self) -> bool:
        """Whether the agent reads more requests from this client."""
        return not self.closing and self._bytes < _MOST_QUEUED

    @property
    def may_log(self) -> bool:
        """Whether there is room to queue worker output."""
        return self._bytes < _MOST_LOGS

    def send(self, head: list[Any], body: bytes = b"") -> None:
        """Queue a frame, and send at once as much as the socket accepts.

        Raises:
            OSError: the connection is broken.
        """
        data = memoryview(wire.frame(head, body))
        self._waiting.append(data)
        self._bytes += len(data)
        self.flush()

    def flush(self) -> None:
        """Send as much of the queued bytes as the socket accepts.

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
