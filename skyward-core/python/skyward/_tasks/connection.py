"""A worker's connection to its client, which a new one replaces, and which may be missing."""

from __future__ import annotations

import contextlib
import errno
import select
import socket
from collections import deque
from collections.abc import Callable
from itertools import islice
from time import sleep
from typing import Final

from .._core import state, wire
from .._core.descriptors import NO_ROOM, PAUSE, accept, move_descriptor
from .._core.messages import ToWorker
from .._values.codec import Buffer
from .alert import ALERT_NS, CALLS_ALERT_NS, poll_alert, poll_asleep
from .pipes import Opening, Pipes

_STUCK_MS: Final = 200
"""Milliseconds after which a client that accepts nothing is given up, if the worker must go on."""
_PIECES: Final = 512
"""The most pieces per system call; systems allow 1024."""
_SEND_BUFFER: Final = 1 << 20
"""Bytes. With a large buffer, large results need fewer system calls on both sides."""


class LostDescriptorsError(Exception):
    """The payload closed descriptors that belong to the worker; the text names them."""


class Connection:
    """The current connection, if any, and the frames that pass over it.

    A frame that cannot be sent is dropped: whoever sends it keeps it, and sends it again when a
    client has connected.
    """

    def __init__(self, listener: socket.socket, max_frame_bytes: int, decode: Callable[[memoryview], ToWorker]) -> None:
        """Start without a connection.

        Args:
            listener: the socket on which clients connect.
            max_frame_bytes: the most bytes of a body, in either direction.
            decode: decodes the head of a frame.
        """
        self.lost = False
        """Whether the payload has closed the connection's descriptor."""
        self.max_frame_bytes = max_frame_bytes
        self._decode = decode
        self._listener = listener
        self._connection: socket.socket | Pipes | None = None
        self._opening: Opening | None = None
        """The connection until its client has sent `Hello`."""
        self._reader = wire.FrameReader(max_frame_bytes, decode)
        self._greeted = False
        self._pumping = False
        self._sending = False
        self._outbox: deque[list[Buffer]] = deque()
        """Frames that came up while another frame was being sent, or while input was being read."""
        self._poll = select.poll()
        self._poll.register(listener, select.POLLIN)

    def _handle(self, message: ToWorker, body: memoryview, owned: bool) -> None:
        """Handle a message that has arrived.

        Args:
            message: the message.
            body: its body.
            owned: whether the body's memory may be kept.

        Raises:
            ProtocolError: the message breaks the protocol.
        """
        raise NotImplementedError

    def _may_read(self) -> bool:
        """Return whether messages are read while a frame cannot be sent."""
        raise NotImplementedError

    def _must_go_on(self) -> bool:
        """Return whether a client that accepts nothing must be given up."""
        raise NotImplementedError

    def detach(self) -> None:
        """Close the connection and the listener in a forked child; its parent keeps them."""
        self._poll = select.poll()
        self._greeted = False
        connection, self._connection = self._connection, None
        for opened in (self._opening, connection, self._listener):
            if opened is not None:
                # The payload may have closed it already.
                with contextlib.suppress(OSError):
                    opened.close()

    def poll(self, on_quiet: Callable[[], None]) -> list[tuple[int, int]]:
        """Wait until something arrives; return the events for `attend`.

        Args:
            on_quiet: called if nothing arrives for a while.
        """
        return poll_asleep(self._poll, on_quiet)

    def poll_alert(self, on_quiet: Callable[[], None]) -> list[tuple[int, int]]:
        """Wait like `poll`, but do not sleep at first; after a call, further calls are likely."""
        return poll_alert(self._poll, CALLS_ALERT_NS if state.depth else ALERT_NS, on_quiet)

    def wait(self, longest: float | None = None) -> None:
        """Wait until something arrives, for at most `longest` seconds, and read it."""
        self.attend(self._poll.poll(None if longest is None else longest * 1000))

    def pump(self) -> None:
        """Read what has arrived, without waiting."""
        self.attend(self._poll.poll(0))

    @property
    def is_alone(self) -> bool:
        """Whether there is no connection."""
        return self._connection is None

    def abandon(self) -> None:
        """End the connection: a frame may be half sent or half read. The client reconnects."""
        self._sending = self._pumping = False
        self._drop()

    def attend(self, events: list[tuple[int, int]]) -> None:
        """Handle the events of `poll`."""
        for descriptor, event in events:
            if event & select.POLLNVAL:
                self.lost = True
                raise LostDescriptorsError("the descriptor of its connection")
            if self._connection is not None and descriptor == self._connection.fileno():
                self._read()
            elif descriptor == self._listener.fileno():
                self._accept()

    def _accept(self) -> None:
        # Several connections may wait, of a client that reconnected while a task ran. The last one
        # counts.
        while True:
            try:
                connection = accept(self._listener)
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                # The listener stays readable until the payload closes descriptors.
                sleep(PAUSE)
                return
            self._replace(connection)

    def _replace(self, connection: socket.socket) -> None:
        # Read first what the old connection has delivered, so that it is not lost.
        self._read()
        self._drop()
        connection.setblocking(False)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        self._connection = connection
        self._opening = Opening(connection)
        self._reader = wire.FrameReader(self.max_frame_bytes, self._decode)
        self._greeted = False
        self._poll.register(connection, select.POLLIN)
        self._read()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        self._outbox.clear()
        self._end_opening()
        if connection is not None:
            self._poll.unregister(connection)
            if type(connection) is Pipes:
                with contextlib.suppress(KeyError):
                    self._poll.unregister(connection.outgoing)
            connection.close()

    def _end_opening(self) -> None:
        if self._opening is not None:
            self._opening.close()
            self._opening = None

    def _read(self) -> None:
        connection = self._connection
        if self._pumping:
            return
        self._pumping = True
        try:
            while connection is not None and connection is self._connection:
                count = self._reader.fill(self._opening or connection)
                if count == 0:
                    self._drop()
                    return
                for message, body, owned in self._reader.frames():
                    self._handle(message, body, owned)
                if count < 1 << 16:
                    return
        except BlockingIOError:
            return
        except wire.ProtocolError as error:
            self._refuse(error.number, str(error))
        except wire.UNREADABLE as error:
            self._refuse(wire.LOAD, f"cannot decode a payload: {error}")
        except OSError as error:
            self._broken(error)
        finally:
            self._pumping = False
            self._send_waiting()

    def _refuse(self, number: int, text: str) -> None:
        if self._connection is not None and not self._sending:
            try:
                self._connection.send(wire.frame([wire.ERROR, number, text]))
            except OSError:
                pass
        self._drop()

    def _adopt(self) -> None:
        """Continue over the descriptors that arrived with the message."""
        pipes = self._opening.pipes(move_descriptor) if self._opening is not None else None
        if pipes is None or self._connection is None:
            raise wire.ProtocolError("this message must be the first, and bring two descriptors", wire.ADOPT)
        self._poll.unregister(self._connection)
        self._connection, self._opening = pipes, None
        self._poll.register(pipes, select.POLLIN)

    def _send(self, parts: list[Buffer]) -> None:
        """Send a frame; without a connection it waits in `_retained` or in its stream."""
        connection = self._connection
        if connection is None or not self._greeted:
            return
        if self._sending or self._pumping:
            self._outbox.append(parts)
            return
        try:
            if len(parts) == 1:
                sent = connection.send(parts[0])
                if sent == len(parts[0]):
                    return
            else:
                sent = connection.sendmsg(parts[:_PIECES])
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._broken(error)
            return
        self._sending = True
        try:
            rest = deque(memoryview(part) for part in parts)
            while rest and connection is self._connection:
                while rest and sent >= len(rest[0]):
                    sent -= len(rest.popleft())
                if rest:
                    rest[0] = rest[0][sent:]
                    sent = self._send_when_possible(connection, rest)
        finally:
            self._sending = False
        self._send_waiting()

    def _send_waiting(self) -> None:
        """Send frames that had to wait for another frame."""
        while self._outbox and not self._sending and not self._pumping:
            self._send(self._outbox.popleft())

    def _send_when_possible(self, connection: socket.socket | Pipes, rest: deque[memoryview]) -> int:
        """Wait a while for the client to accept more; read its input or a new connection meanwhile.

        If the client accepts nothing, a task that was cancelled and a worker that must end do not
        wait any longer: the connection ends.
        """
        wanted = select.POLLIN if self._may_read() else 0
        incoming = outgoing = connection.fileno()
        if type(connection) is Pipes:
            outgoing = connection.outgoing
            self._poll.modify(incoming, wanted)
            self._poll.register(outgoing, select.POLLOUT)
        else:
            self._poll.modify(incoming, select.POLLOUT | wanted)
        try:
            # A signal that arrives meanwhile does not end `poll`.
            events = self._poll.poll(_STUCK_MS)
            if not events and self._must_go_on():
                # The frame is kept, and is sent again when a client connects.
                self._drop()
                return 0
            for descriptor, event in events:
                if descriptor not in (incoming, outgoing):
                    self._accept()
                    continue
                if event & wanted or descriptor != outgoing:
                    self._read()
                if connection is self._connection and descriptor == outgoing and event & ~select.POLLIN:
                    return connection.sendmsg(list(islice(rest, _PIECES)))
        except BlockingIOError:
            pass
        except OSError as error:
            if connection is self._connection:
                self._broken(error)
        finally:
            if connection is self._connection:
                self._poll.modify(incoming, select.POLLIN)
                if outgoing != incoming:
                    self._poll.unregister(outgoing)
        return 0

    def _broken(self, error: OSError) -> None:
        if error.errno is None:
            # Not an error of a system call: a signal handler of the payload has raised, for example
            # `TimeoutError`.
            self.abandon()
            raise error
        if error.errno in (errno.EBADF, errno.ENOTSOCK):
            self.lost = True
            raise LostDescriptorsError("the descriptor of its connection")
        # A client that is gone may have sent requests before, for whose answers it asks when it
        # reconnects.
        self._read()
        self._drop()
