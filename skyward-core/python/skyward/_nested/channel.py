"""Numbered messages between this worker and the client, which survive lost connections."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import traceback
from collections import deque
from collections.abc import Callable, Iterable
from operator import itemgetter
from time import sleep
from typing import Any, Final

import msgspec

from .._calls.handlers import EXHAUSTED, raised_by_handler
from .._core import wire
from .._core.complaint import complain
from .._tasks.alert import CALLS_ALERT_NS, poll_alert
from .._tasks.session import NO_ROOM, LostDescriptorsError, accept, raise_descriptor
from .._values.codec import Buffer
from .messages import Ack, Attach, Numbered, ToCalls

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ToCalls).decode
_SMALL: Final = 1 << 16
_PIECES: Final = 512
_SEND_BUFFER: Final = 1 << 20
_MOST_UNTOLD: Final = 64
_MOST_UNTOLD_BYTES: Final = 1 << 18
"""Messages, and bytes of their bodies, after which the client is sent an acknowledgement."""
_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
"""Seconds of pause after a message that could not be handled; it doubles up to the second value."""
_COUNTED: Final = itemgetter(2)
_GONE: Final = (errno.EBADF, errno.ENOTSOCK)


class Channel:
    """The messages that are not acknowledged, and the current connection, if any.

    Any thread may send, with the lock held. One thread serves: only that thread reads, and opens
    and closes connections.
    """

    def __init__(
        self,
        path: str,
        hello: list[Any],
        generation: int,
        max_frame_bytes: int,
        lock: Any,
        handle: Callable[[Numbered, Buffer], None],
        on_turn: Callable[[], None],
        on_quiet: Callable[[], None],
    ) -> None:
        """Listen, without serving yet.

        Args:
            path: the socket's path, at which clients connect.
            hello: the worker's `Hello`, without the number of messages that have arrived.
            generation: the generation of this worker.
            max_frame_bytes: the most bytes of a body, in either direction.
            lock: the lock that callers of `send` hold.
            handle: called with each message, in order, and its body to keep, without the lock. If
                it raises, the connection ends, and the message comes again over the next one;
                otherwise each message comes once.
            on_turn: called after `nudge` and whenever else the serving thread wakes, on that
                thread, without the lock. If it raises, it is called again.
            on_quiet: called on the serving thread if nothing arrives for a while.

        Raises:
            OSError: the path cannot be listened at.
        """
        self._hello = hello
        self._generation = generation
        self._max_frame_bytes = max_frame_bytes
        self._lock = lock
        self._handle = handle
        self._on_turn = on_turn
        self._on_quiet = on_quiet
        self.sent = 0
        """The number of the last message. It is kept, so the client gets it sooner or later."""
        self._kept: deque[tuple[int, list[Buffer], int]] = deque()
        """Messages that are not acknowledged: number, frame, and their share of `kept_bytes`."""
        self.kept_bytes = 0
        """Bytes of these messages, without answers to requests of the client."""
        self._arrived = 0
        """The client has acknowledged messages up to this number."""
        self._received = 0
        self._untold = self._untold_bytes = 0
        self._is_attached = False
        """Whether the connection's client has sent `Hello`."""
        self._greeted = False
        """Whether messages may be sent over the connection."""
        self._is_abandoned = False
        """Whether the connection has to be shut down, because a message is half sent."""
        self._connection: socket.socket | None = None
        self._unsent: deque[memoryview] = deque()
        """Bytes that the connection did not accept at once."""
        self._reader = wire.FrameReader(max_frame_bytes, _decode)
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
        """Send a message, and keep it until it is acknowledged; without a connection it waits.

        The client gets a message that is kept, so memory and stack that run out later raise
        nothing. If this raises what a signal handler raised, `sent` shows whether it was kept.

        Args:
            number: the message number.
            fields: the rest of its head.
            body: its body.
            counts: whether its bytes count in `kept_bytes`.

        Raises:
            LostDescriptorsError: the payload has closed descriptors of the worker.
            BaseException: memory or stack ran out, or a signal handler raised.
        """
        n = self.sent + 1
        head = _encode([number, n, *fields])
        start = wire.HEADER.pack(len(head), len(body)) + head
        parts: list[Buffer] = [start + body] if len(body) < _SMALL else [start, body]
        # A message that cannot be encoded, because memory or stack ran out, must take no number:
        # numbers may not be missing.
        counted = sum(map(len, parts)) if counts else 0
        try:
            self._kept.append((n, parts, counted))
            self.sent = n
            self.kept_bytes += counted
            self._write(parts)
        except LostDescriptorsError:
            raise
        except BaseException as error:
            # A signal handler raised, or memory or stack ran out: the frame may be half sent, or
            # sent and still queued. The client gets all that is kept over the next connection.
            # The stack may have no room for functions written in Python.
            self._greeted, self._is_abandoned = False, True
            if self._kept:
                self.sent = self._kept[-1][0]
            self.kept_bytes = sum(map(_COUNTED, self._kept))
            self._unsent.clear()
            try:
                if self._connection is not None:
                    self._connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            self._is_abandoned = False
            if self.sent != n or not isinstance(error, EXHAUSTED):
                raise

    def nudge(self) -> None:
        """Wake the serving thread.

        Raises:
            LostDescriptorsError: the payload has closed descriptors of the worker.
        """
        try:
            self._nudging.send(b"\0")
        except BlockingIOError:
            pass  # the thread is about to wake up already
        except OSError as error:
            if raised_by_handler(error):
                raise
            raise LostDescriptorsError("the descriptors of its calls") from None

    def detach(self) -> None:
        """Close everything in a forked child; its parent keeps the connection."""
        for opened in (self._connection, self._listener, self._nudged, self._nudging):
            if opened is not None:
                with contextlib.suppress(OSError):
                    opened.close()

    def _write(self, parts: Iterable[Buffer]) -> None:
        """Write as much as the connection accepts at once, unless earlier bytes wait."""
        if self._is_abandoned:
            self._abandon()
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
            if raised_by_handler(error):
                raise
            if error.errno in _GONE:
                raise LostDescriptorsError("the descriptors of its calls") from None
            # The message is kept, for the next connection.
            self._abandon()

    def _abandon(self) -> None:
        """Shut the connection down; the serving thread sees its end.

        If this raises, the next message or turn of the serving thread repeats it: otherwise the
        client would wait for messages on a connection on which none is sent.
        """
        self._greeted, self._is_abandoned = False, True
        self._unsent.clear()
        try:
            if self._connection is not None:
                self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._is_abandoned = False

    # The thread that serves

    def serve(self) -> None:
        """Serve for as long as the process lives.

        Raises:
            LostDescriptorsError: the payload has closed descriptors of the worker.
        """
        pause, failed_after = _PAUSE, -1
        while True:
            try:
                self._turn()
            except wire.ProtocolError as error:
                self._refuse(error)
            except LostDescriptorsError:
                raise
            except OSError as error:
                if error.errno in _GONE:
                    raise LostDescriptorsError("the descriptors of its calls") from None
                self._drop()
            except BaseException:
                with contextlib.suppress(Exception):
                    complain(f"the connection for calls ends because of an error: {traceback.format_exc()}")
                self._drop()
                # An error that occurs each time must not keep a processor busy.
                pause = min(pause * 2, _LONGEST_PAUSE) if self._received == failed_after else _PAUSE
                failed_after = self._received
                sleep(pause)

    def _turn(self) -> None:
        self._on_turn()
        if self._is_abandoned:
            with self._lock:
                self._abandon()
        connection = self._connection
        if connection is not None:
            self._poll.modify(connection, select.POLLIN | (select.POLLOUT if self._unsent else 0))
        for descriptor, event in poll_alert(self._poll, CALLS_ALERT_NS, self._on_quiet):
            if event & select.POLLNVAL:
                raise LostDescriptorsError("the descriptors of its calls")
            if descriptor == self._listener.fileno():
                self._accept()
            elif descriptor == self._nudged.fileno():
                with contextlib.suppress(BlockingIOError):
                    self._nudged.recv(4096)
            elif connection is not None and connection is self._connection:
                if event & select.POLLOUT:
                    with self._lock:
                        self._flush(connection)
                if event & ~select.POLLOUT:
                    self._read(connection)

    def _accept(self) -> None:
        while True:
            try:
                # A fork takes the lock: its child must know each connection, to close it.
                with self._lock:
                    connection = accept(self._listener)
                    self._drop()
                    self._connection = connection
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                # The listener stays readable until the payload closes descriptors.
                sleep(_PAUSE)
                return
            connection.setblocking(False)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
            self._reader = wire.FrameReader(self._max_frame_bytes, _decode)
            self._poll.register(connection, select.POLLIN)

    def _drop(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
            self._is_attached = self._greeted = self._is_abandoned = False
            self._unsent.clear()
        if connection is not None:
            with contextlib.suppress(KeyError, OSError, ValueError):
                self._poll.unregister(connection)
            with contextlib.suppress(OSError):
                # A process that the payload has started may hold the socket too.
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _refuse(self, error: wire.ProtocolError) -> None:
        connection = self._connection
        # Do not write into the middle of a frame.
        if connection is not None and not self._unsent and not self._is_abandoned:
            with contextlib.suppress(OSError):
                connection.send(wire.frame([wire.ERROR, error.number, str(error)]))
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
                self._write([wire.frame([wire.WORKER_CALLS_ACK, self._received])])

    def _take(self, message: ToCalls, body: memoryview, owned: bool) -> None:
        if type(message) is Attach:
            self._attach(message)
            return
        # What arrives before an abandoned connection is shut down is valid.
        if not self._is_attached:
            raise wire.ProtocolError("the first message must be Hello")
        if type(message) is Ack:
            self._acknowledge(message.received)
            return
        assert not isinstance(message, Attach | Ack)
        if message.n <= self._received:
            return  # it has arrived over an earlier connection
        if message.n != self._received + 1:
            number: int = message.__struct_config__.tag  # type: ignore[assignment]
            raise wire.ProtocolError(f"message {message.n} arrived after message {self._received}", number)
        self._handle(message, body if owned else bytes(body))
        # Count it only now: a message that could not be handled, for lack of memory, comes again.
        self._received = message.n
        self._untold += 1
        self._untold_bytes += len(body)

    def _attach(self, hello: Attach) -> None:
        if hello.version != wire.PROTOCOL:
            raise wire.ProtocolError(wire.other_version(hello.version), wire.CALLS_ATTACH)
        if hello.generation != self._generation:
            text = f"the worker belongs to generation {self._generation}, not {hello.generation}"
            raise wire.ProtocolError(text, wire.CALLS_ATTACH)
        with self._lock:
            if hello.received < self._arrived:
                text = (
                    f"messages up to {self._arrived} have arrived, but this client has only those up to "
                    f"{hello.received}: it is not the client that received them; end the worker and start another"
                )
                raise wire.ProtocolError(text, wire.CALLS_ATTACH)
            self._acknowledge(hello.received)
            self._is_attached = self._greeted = True
            self._untold = self._untold_bytes = 0
            self._write([wire.frame([*self._hello, self._received])])
            for _, parts, _ in self._kept:
                self._write(parts)

    def _acknowledge(self, received: int) -> None:
        with self._lock:
            if received > self.sent:
                raise wire.ProtocolError(f"message {received} cannot have arrived: {self.sent} were sent")
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
