"""The socket of a connection to the mover: messages that arrive, and frames that are sent."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any, Final

import msgspec

from .._core import wire
from .messages import ToMover

_PATIENCE: Final = 60.0
"""Seconds that a client may take to receive more of a frame, and that anyone may take to greet."""
_LAST_WORDS: Final = 1.0
"""Seconds to wait until a frame that is being sent to a refused peer is complete."""
_GREETING: Final = 4096
"""The largest body before the greeting, which has none."""
_decode: Final = msgspec.msgpack.Decoder(ToMover).decode


class Gone(Exception):
    """The peer is gone, or does not read. A frame may have been sent in part."""


class Peer:
    """The other end of a connection. One thread receives from it; several may send to it."""

    def __init__(self, opened: socket.socket) -> None:
        """Accept a peer, which is to greet.

        Args:
            opened: its socket.
        """
        opened.settimeout(_PATIENCE)
        self.idle_since: float | None = monotonic()
        """When the mover began to wait for a message; None while it answers one."""
        self._socket = opened
        self._reader = wire.FrameReader(_GREETING, _decode)
        self._greet_until = monotonic() + _PATIENCE
        self._has_greeted = False
        self._may_be_busy = False
        self._sending = threading.RLock()

    def greeted(self, max_body: int, may_be_busy: bool) -> None:
        """Wait for its messages from now on, however long that takes.

        Args:
            max_body: the largest body that it may send.
            may_be_busy: whether it may leave what is sent to it unread for as long as it wants.
        """
        self._has_greeted = True
        self._reader.max_body = max_body
        self._may_be_busy = may_be_busy

    def messages(self) -> Iterator[tuple[ToMover, memoryview]]:
        """Yield the messages that arrive, with their bodies, which are valid until the next one.

        Raises:
            OSError: the connection has broken.
            ProtocolError: a message cannot be read.
        """
        while self._receive():
            for message, body, _ in self._reader.frames():
                yield message, body

    def send(self, head: list[Any], body: bytes | memoryview = b"") -> None:
        """Send a frame; the time of `_PATIENCE` begins anew whenever the peer has received some of it.

        Raises:
            Gone: the peer is gone, or does not read.
        """
        begin = wire.prefix(head, len(body))
        with self._sending:
            try:
                sent = self._patiently(self._socket.sendmsg, (begin, body))
                for part in (memoryview(begin)[sent:], memoryview(body)[max(0, sent - len(begin)) :]):
                    rest = part
                    while rest:
                        rest = rest[self._patiently(self._socket.send, rest) :]
            except Exception as error:
                raise Gone from error

    @contextmanager
    def uninterrupted(self) -> Iterator[None]:
        """Context manager: no other thread sends meanwhile."""
        with self._sending:
            yield

    def refuse(self, error: wire.ProtocolError) -> None:
        """Tell the peer why its connection ends, if it reads, and end it."""
        if self._sending.acquire(timeout=_LAST_WORDS):
            try:
                self._may_be_busy = False
                self._socket.settimeout(_LAST_WORDS)
                with suppress(Gone, OSError):
                    self.send([wire.ERROR, error.number, str(error), 0])
            finally:
                self._sending.release()
        self.close()

    def shut(self) -> None:
        """End the connection; the thread that serves it ends soon."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the connection, and give its descriptor back."""
        # A thread that sends ends only by this.
        self.shut()
        self._socket.close()

    def _patiently(self, send: Callable[[Any], int], data: Any) -> int:
        while True:
            try:
                return send(data)
            except TimeoutError:
                if not self._may_be_busy:
                    raise

    def _receive(self) -> bool:
        """Wait for more bytes; return whether there are any."""
        self.idle_since = monotonic()
        # A peer that has greeted may keep its connection for later.
        while self._has_greeted or monotonic() < self._greet_until:
            with suppress(TimeoutError):
                count = self._reader.fill(self._socket)
                self.idle_since = None
                return count > 0
        return False
