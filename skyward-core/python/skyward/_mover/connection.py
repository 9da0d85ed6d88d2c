"""One connection of a client to the mover, which answers its requests one after another."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Any, Final

import msgspec

from .._core import wire
from . import files
from .messages import Drop, Hello, Read, Request, Stat, ToMover

_PATIENCE: Final = 60.0
"""Seconds that a client may take to receive more of an answer, and to greet."""
_MAX_BODY: Final = 4096
"""The largest body that a mover accepts: no message has one."""
_decode: Final = msgspec.msgpack.Decoder(ToMover).decode


class Connection:
    """A connection, served by a thread of its own. Only this thread waits for the client."""

    def __init__(self, opened: socket.socket, belongs_to: Callable[[str], str]) -> None:
        """Serve a client from now on.

        Args:
            opened: its socket.
            belongs_to: returns the pool of the mover, for that of a client.
        """
        opened.settimeout(_PATIENCE)
        self._socket = opened
        self._belongs_to = belongs_to
        self._reader = wire.FrameReader(_MAX_BODY, _decode)
        self._greeted = False

    def serve(self) -> None:
        """Answer until the client ends the connection, breaks the protocol, or does not read."""
        try:
            while self._receive():
                for message, _, _ in self._reader.frames():
                    self._answer(message)
        except wire.ProtocolError as error:
            self._refuse(error)
        except OSError:
            pass  # the client is gone, or does not read

    def _receive(self) -> bool:
        """Wait for more bytes; return whether there are any."""
        while True:
            try:
                return self._reader.fill(self._socket) > 0
            except TimeoutError:
                # A client that has greeted may keep its connection for later.
                if not self._greeted:
                    return False

    def _answer(self, message: ToMover) -> None:
        number = int(message.__struct_config__.tag or 0)
        if isinstance(message, Hello):
            self._greet(message)
            return
        if not self._greeted:
            raise wire.ProtocolError("the first message must be Hello", number)
        try:
            self._do(message)
        except files.Refused as refused:
            self._send([wire.FAILED, message.request, refused.kind, str(refused), refused.number])
        except ValueError as error:
            raise wire.ProtocolError(str(error), number) from None

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
        pool = self._belongs_to(hello.pool)
        if hello.pool != pool:
            raise wire.ProtocolError(f"this mover belongs to pool {pool}, not {hello.pool}", wire.MOVER_ATTACH)
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
        with files.opened(path, read.identity) as (file, about):
            count = max(0, min(read.length, about.st_size - read.offset))
            if count:
                files.check_readable(path, file, read.offset)
            self._send_all(wire.prefix([wire.MOVER_PIECE, read.request, *files.identity(about)], count))
            # It reads the file itself where the system cannot send from one.
            if count and self._socket.sendfile(file, read.offset, count) < count:
                # The file has become shorter. The client repeats the request over another
                # connection, and finds that the file has changed.
                raise ConnectionAbortedError

    def _send(self, head: list[Any], body: bytes = b"") -> None:
        self._send_all(wire.prefix(head, len(body)))
        self._send_all(body)

    def _send_all(self, data: bytes) -> None:
        """Send all bytes; the time of `_PATIENCE` begins anew whenever the client has received some."""
        view = memoryview(data)
        while view:
            view = view[self._socket.send(view) :]

    def _refuse(self, error: wire.ProtocolError) -> None:
        try:
            self._send([wire.ERROR, error.number, str(error), 0])
        except OSError:
            pass  # it does not read
