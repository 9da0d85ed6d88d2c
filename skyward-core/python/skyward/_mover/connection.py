"""One connection of a client to the mover, which answers its requests one after another."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from time import monotonic
from typing import Any, Final

import msgspec

from .._core import wire
from .._core.complaint import complain
from . import files
from .messages import Drop, Hello, Read, Request, Stat, ToMover

_PATIENCE: Final = 60.0
"""Seconds that a client may take to receive more of an answer, and to greet."""
_MAX_BODY: Final = 4096
"""The largest body that a mover accepts: no message has one."""
_decode: Final = msgspec.msgpack.Decoder(ToMover).decode


class _Gone(Exception):
    """The client is gone, or does not read. A frame may have been sent in part."""


class Connection:
    """A connection, served by a thread of its own. Only this thread waits for the client."""

    def __init__(self, opened: socket.socket, pool: str) -> None:
        """Accept a client.

        Args:
            opened: its socket.
            pool: the pool of the mover, to which the client must belong.
        """
        opened.settimeout(_PATIENCE)
        self.idle_since: float | None = monotonic()
        """When the mover began to wait for a request; None while it answers one."""
        self._socket = opened
        self._pool = pool
        self._reader = wire.FrameReader(_MAX_BODY, _decode)
        self._greet_until = monotonic() + _PATIENCE
        self._greeted = False
        self._buffer = bytearray()
        """Memory for a piece, which is kept for the next one."""

    def serve(self) -> None:
        """Answer until the client ends the connection, breaks the protocol, or does not read."""
        try:
            with self._socket:
                self._serve()
        except (_Gone, OSError):
            pass  # the client is gone, or does not read

    def refuse(self, error: wire.ProtocolError) -> None:
        """Tell the client why its connection ends, and end it."""
        with self._socket, suppress(_Gone):
            self._send([wire.ERROR, error.number, str(error), 0])

    def shut(self) -> None:
        """End the connection; the thread that serves it ends soon."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        try:
            while self._receive():
                for message, _, _ in self._reader.frames():
                    self._answer(message)
        except wire.ProtocolError as error:
            self.refuse(error)

    def _receive(self) -> bool:
        """Wait for more bytes; return whether there are any."""
        self.idle_since = monotonic()
        # A client that has greeted may keep its connection for later.
        while self._greeted or monotonic() < self._greet_until:
            with suppress(TimeoutError):
                count = self._reader.fill(self._socket)
                self.idle_since = None
                return count > 0
        return False

    def _answer(self, message: ToMover) -> None:
        if isinstance(message, Hello):
            self._greet(message)
            return
        if not self._greeted:
            raise wire.ProtocolError("the first message must be Hello", int(message.__struct_config__.tag or 0))
        try:
            self._do(message)
        except files.Refused as refused:
            self._fail(message, refused)
        except _Gone:
            raise
        except Exception as error:
            import traceback

            # The connection has other requests, which can be answered.
            complain(f"the mover cannot answer a request: {traceback.format_exc()}")
            self._fail(message, files.Refused("io", f"the mover failed: {type(error).__name__}: {error}"))

    def _do(self, request: Request) -> None:
        if type(request) is Stat:
            self._list(request.request, files.locate(request.artifact, request.path))
        elif type(request) is Read:
            self._read(request, files.locate(request.artifact, request.path))
        elif type(request) is Drop:
            files.drop(request.artifact)
            self._send([wire.DONE, request.request])

    def _greet(self, hello: Hello) -> None:
        if hello.version != wire.PROTOCOL:
            raise wire.ProtocolError(wire.other_version(hello.version), wire.MOVER_ATTACH)
        if hello.pool != self._pool:
            text = f"this mover belongs to pool {self._pool}, not {hello.pool[:100]}"
            raise wire.ProtocolError(text, wire.MOVER_ATTACH)
        self._greeted = True
        self._send([wire.MOVER_HELLO, wire.PROTOCOL, os.getpid()])

    def _list(self, request: int, path: bytes) -> None:
        last: bytes | None = None
        for entries in files.lists(path):
            if last is not None:
                self._send([wire.ENTRIES, request, True], last)
            last = entries
        self._send([wire.ENTRIES, request, False], last or b"")

    def _read(self, read: Read, path: bytes) -> None:
        if read.length > wire.LARGEST_PIECE:
            words = f"a piece has at most {wire.LARGEST_PIECE} bytes, and {read.length} are requested"
            raise files.Refused("invalid", words)
        if len(self._buffer) < read.length:
            self._buffer = bytearray(read.length)
        piece = memoryview(self._buffer)[: read.length]
        identity, count = files.read(path, read.identity, read.offset, piece)
        self._send([wire.MOVER_PIECE, read.request, *identity], piece[:count])

    def _fail(self, request: Request, refused: files.Refused) -> None:
        # Names of files need not be text.
        words = str(refused).encode(errors="replace").decode()
        self._send([wire.FAILED, request.request, refused.kind, words, refused.number])

    def _send(self, head: list[Any], body: bytes | memoryview = b"") -> None:
        """Send a frame; the time of `_PATIENCE` begins anew whenever the client has received some of it."""
        begin = wire.prefix(head, len(body))
        try:
            sent = self._socket.sendmsg((begin, body))
            for part in (memoryview(begin)[sent:], memoryview(body)[max(0, sent - len(begin)) :]):
                rest = part
                while rest:
                    rest = rest[self._socket.send(rest) :]
        except Exception as error:
            raise _Gone from error
