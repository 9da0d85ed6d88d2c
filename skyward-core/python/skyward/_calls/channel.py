"""Numbered messages between this worker and the client, which survive the connections that carry them."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import traceback
from collections import deque
from collections.abc import Callable, Iterable
from time import sleep
from typing import Any, Final

import msgspec

from .. import _wire
from .._complaint import complain
from .._session import LostDescriptorsError, raise_descriptor
from .._values import Buffer
from .messages import Ack, Attach, Numbered, ToCalls

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ToCalls).decode
_SMALL: Final = 1 << 16
_PIECES: Final = 512
_SEND_BUFFER: Final = 1 << 20
_MOST_UNTOLD: Final = 64
_MOST_UNTOLD_BYTES: Final = 1 << 18
"""Messages, and bytes of their bodies, that may have come since the client was told of the last one."""
_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
"""Seconds until the next connection after a message could not be handled; each time twice as long."""
_GONE: Final = (errno.EBADF, errno.ENOTSOCK)


class Channel:
    """What has been said and not arrived yet, and the connection that there is at the moment.

    Any thread sends, with the lock held; one thread serves: only that one reads, and opens and closes connections.
    """

    def __init__(
        self,
        path: str,
        hello: list[Any],
        generation: int,
        max_frame: int,
        lock: Any,
        handle: Callable[[Numbered, Buffer], None],
        on_nudge: Callable[[], None],
    ) -> None:
        """Listen, without serving yet.

        Args:
            path: where clients connect.
            hello: the worker's `Hello`, without the number of what has arrived.
            generation: the world that this worker belongs to.
            max_frame: most bytes that a body may have, in either direction.
            lock: is held by whoever calls `send`.
            handle: gets each message, in order, and its body to keep, without the lock; once, unless it raises: that
                ends the connection, and the message comes again over the next.
            on_nudge: is called after `nudge`, on the thread that serves, without the lock.

        Raises:
            OSError: nothing can listen there.
        """
        self._hello = hello
        self._generation = generation
        self._max_frame = max_frame
        self._lock = lock
        self._handle = handle
        self._on_nudge = on_nudge
        self._sent = 0
        self._kept: deque[tuple[int, list[Buffer], int]] = deque()
        """What has been sent, and has not arrived as far as is known: its number, and what it adds to `kept_bytes`."""
        self.kept_bytes = 0
        """Bytes of that, without answers to what the client has asked for."""
        self._arrived = 0
        """The client has said that messages up to this number have arrived."""
        self._received = 0
        self._untold = self._untold_bytes = 0
        self._greeted = False
        self._connection: socket.socket | None = None
        self._unsent: deque[memoryview] = deque()
        """What the connection did not take at once."""
        self._reader = _wire.FrameReader(max_frame, _decode)
        self._listener = _listen(path)
        nudged, nudging = socket.socketpair()
        self._nudged, self._nudging = raise_descriptor(nudged), raise_descriptor(nudging)
        for opened in (self._nudged, self._nudging):
            opened.setblocking(False)
        self._poll = select.poll()
        self._poll.register(self._listener, select.POLLIN)
        self._poll.register(self._nudged, select.POLLIN)

    # Any thread

    def send(self, number: int, *fields: Any, body: Buffer = b"", counts: bool = True) -> None:
        """Send a message, and keep it until it has arrived; without a connection it waits.

        Args:
            number: which message.
            fields: its head.
            body: its body.
            counts: whether its bytes count in `kept_bytes`.

        Raises:
            LostDescriptorsError: the payload has closed what belongs to the worker.
        """
        n = self._sent + 1
        head = _encode([number, n, *fields])
        start = _wire.HEADER.pack(len(head), len(body)) + head
        parts: list[Buffer] = [start + body] if len(body) < _SMALL else [start, body]
        # What cannot be encoded, for want of memory or of room on the stack, takes no number: none may be missing.
        counted = sum(map(len, parts)) if counts else 0
        self._kept.append((n, parts, counted))
        self._sent = n
        self.kept_bytes += counted
        self._write(parts)

    def nudge(self) -> None:
        """Have the serving thread look up.

        Raises:
            LostDescriptorsError: the payload has closed what belongs to the worker.
        """
        try:
            self._nudging.send(b"\0")
        except BlockingIOError:
            pass  # it is about to look
        except OSError:
            raise LostDescriptorsError("those of its calls") from None

    def detach(self) -> None:
        """Close everything in a forked child, whose parent goes on with it."""
        for opened in (self._connection, self._listener, self._nudged, self._nudging):
            if opened is not None:
                with contextlib.suppress(OSError):
                    opened.close()

    def _write(self, parts: Iterable[Buffer]) -> None:
        """Write at once what the connection takes, if it does not wait for something else already."""
        connection = self._connection
        if connection is None or not self._greeted:
            return
        waiting = bool(self._unsent)
        self._unsent.extend(memoryview(part) for part in parts)
        if not waiting:
            self._flush(connection)
            if self._unsent:
                self.nudge()

    def _flush(self, connection: socket.socket) -> None:
        unsent = self._unsent
        try:
            while unsent:
                if len(unsent) == 1:
                    sent = connection.send(unsent[0])
                else:
                    sent = connection.sendmsg([unsent[at] for at in range(min(len(unsent), _PIECES))])
                while unsent and sent >= len(unsent[0]):
                    sent -= len(unsent.popleft())
                if sent:
                    unsent[0] = unsent[0][sent:]
        except BlockingIOError:
            pass
        except OSError as error:
            if error.errno in _GONE:
                raise LostDescriptorsError("those of its calls") from None
            # It is kept. The serving thread sees that the connection has ended, and waits for the next.
            self._greeted = False
            unsent.clear()
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    # The thread that serves

    def serve(self) -> None:
        """Serve for as long as the process lives.

        Raises:
            LostDescriptorsError: the payload has closed what belongs to the worker.
        """
        pause, failed_after = _PAUSE, -1
        while True:
            try:
                self._turn()
            except _wire.ProtocolError as error:
                self._refuse(error)
            except LostDescriptorsError:
                raise
            except OSError as error:
                if error.errno in _GONE:
                    raise LostDescriptorsError("those of its calls") from None
                self._drop()
            except BaseException:
                with contextlib.suppress(Exception):
                    complain(f"a connection of calls ends: {traceback.format_exc()}")
                self._drop()
                # What goes wrong each time must not keep a processor busy.
                pause = min(pause * 2, _LONGEST_PAUSE) if self._received == failed_after else _PAUSE
                failed_after = self._received
                sleep(pause)

    def _turn(self) -> None:
        connection = self._connection
        if connection is not None:
            self._poll.modify(connection, select.POLLIN | (select.POLLOUT if self._unsent else 0))
        for descriptor, event in self._poll.poll():
            if event & select.POLLNVAL:
                raise LostDescriptorsError("those of its calls")
            if descriptor == self._listener.fileno():
                self._accept()
            elif descriptor == self._nudged.fileno():
                with contextlib.suppress(BlockingIOError):
                    self._nudged.recv(4096)
                self._on_nudge()
            elif connection is not None and connection is self._connection:
                if event & select.POLLOUT:
                    with self._lock:
                        self._flush(connection)
                if event & ~select.POLLOUT:
                    self._read(connection)

    def _accept(self) -> None:
        while True:
            try:
                opened, _ = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            self._drop()
            connection = raise_descriptor(opened)
            connection.setblocking(False)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
            self._reader = _wire.FrameReader(self._max_frame, _decode)
            self._poll.register(connection, select.POLLIN)
            self._connection = connection

    def _drop(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
            self._greeted = False
            self._unsent.clear()
        if connection is not None:
            with contextlib.suppress(KeyError, OSError, ValueError):
                self._poll.unregister(connection)
            connection.close()

    def _refuse(self, error: _wire.ProtocolError) -> None:
        connection = self._connection
        # Nothing is written into the middle of a frame.
        if connection is not None and not self._unsent:
            with contextlib.suppress(OSError):
                connection.send(_wire.frame([_wire.ERROR, error.number, str(error)]))
        self._drop()

    def _read(self, connection: socket.socket) -> None:
        try:
            while True:
                count = self._reader.fill(connection)
                if count == 0:
                    self._drop()
                    return
                for message, body, owned in self._reader.frames():
                    self._take(message, body, owned)
                if count < _SMALL:
                    break
        except BlockingIOError:
            pass
        with self._lock:
            if self._untold >= _MOST_UNTOLD or self._untold_bytes >= _MOST_UNTOLD_BYTES:
                self._untold = self._untold_bytes = 0
                self._write([_wire.frame([_wire.WORKER_CALLS_ACK, self._received])])

    def _take(self, message: ToCalls, body: memoryview, owned: bool) -> None:
        if type(message) is Attach:
            self._attach(message)
            return
        if not self._greeted:
            raise _wire.ProtocolError("the first message must be Hello")
        if type(message) is Ack:
            self._acknowledge(message.received)
            return
        assert not isinstance(message, Attach | Ack)
        if message.n <= self._received:
            return  # it came over the connection before
        if message.n != self._received + 1:
            number: int = message.__struct_config__.tag  # type: ignore[assignment]
            raise _wire.ProtocolError(f"message {message.n} came after message {self._received}", number)
        self._handle(message, body if owned else bytes(body))
        # Not before: what could not be handled, for want of memory, comes again over the next connection.
        self._received = message.n
        self._untold += 1
        self._untold_bytes += len(body)

    def _attach(self, hello: Attach) -> None:
        if hello.version != _wire.PROTOCOL:
            raise _wire.ProtocolError(_wire.other_version(hello.version), _wire.CALLS_ATTACH)
        if hello.generation != self._generation:
            text = f"the worker belongs to generation {self._generation}, not {hello.generation}"
            raise _wire.ProtocolError(text, _wire.CALLS_ATTACH)
        with self._lock:
            if hello.received < self._arrived:
                text = (
                    f"messages up to {self._arrived} have arrived, and this client knows of {hello.received}: it is "
                    "not the one that has them; end the worker and start another"
                )
                raise _wire.ProtocolError(text, _wire.CALLS_ATTACH)
            self._acknowledge(hello.received)
            self._greeted = True
            self._untold = self._untold_bytes = 0
            self._write([_wire.frame([*self._hello, self._received])])
            for _, parts, _ in self._kept:
                self._write(parts)

    def _acknowledge(self, received: int) -> None:
        with self._lock:
            if received > self._sent:
                raise _wire.ProtocolError(f"message {received} cannot have arrived: {self._sent} were sent")
            self._arrived = max(self._arrived, received)
            while self._kept and self._kept[0][0] <= received:
                self.kept_bytes -= self._kept.popleft()[2]


def _listen(path: str) -> socket.socket:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(path)
        os.chmod(path, 0o600)
        listener.listen(16)
    except OSError:
        listener.close()
        raise
    listener = raise_descriptor(listener)
    listener.setblocking(False)
    return listener
