"""The connection of one block of checkpoints, or of one `sky.data`, to the mover of its node.

No thread serves it: it is read when the payload waits for something, and at each save. If it is lost,
it is made anew, and what is unanswered is sent again. Signal handlers of the payload may raise, or
use a connection of their own or this one, anywhere in here. So a connection whose use was interrupted is not
used again: what it has sent or read may be a part of a frame.
"""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Callable
from contextlib import suppress
from time import monotonic, sleep
from typing import Any, Final

import msgspec

from .._core import wire
from .._core.descriptors import raise_descriptor
from .._core.inherited import close_in_children
from .notices import notices
from .progress import progress

_PATIENCE: Final = 60.0
"""Seconds in which the mover must accept a connection."""
_LEAVING: Final = 2.0
"""Seconds in which it must do so only to be told that the block has ended."""
_PAUSE: Final = 0.05
"""Seconds between two tries to connect."""
_GLANCE: Final = 0.5
"""Seconds that a mover may take to greet a worker that does not wait for it."""
_SLICE: Final = 0.5
"""Seconds for which one system call waits. Between two, the task can be interrupted."""
_MOST: Final = 1 << 20
"""The most bytes of a body."""


class Why(msgspec.Struct):
    """Why the client does not do what it was asked for."""

    message: str
    hint: str | None = None

    @property
    def words(self) -> str:
        """The text of an error."""
        return f"{self.message}; {self.hint}" if self.hint else self.message


class _LostError(Exception):
    """The connection has ended, or may be in the middle of a frame."""


class _Stream:
    """One connection. An exception in the middle of a frame makes it useless."""

    def __init__(self, path: str) -> None:
        """Connect.

        Raises:
            OSError: nobody listens at the path.
        """
        opened = socket.socket(socket.AF_UNIX)
        try:
            opened.setblocking(False)
            opened.connect(path)
        except BaseException:
            opened.close()
            raise
        self._socket = raise_descriptor(opened)
        self._socket.setblocking(False)
        close_in_children(self._socket)
        self._reader = wire.FrameReader(_MOST)
        self._is_used = False
        """Whether bytes are being sent or read, or that was interrupted."""

    def send(self, frame: bytes, until: float) -> None:
        """Send a frame.

        Raises:
            _LostError: the connection is lost, or the mover does not read until this time.
        """
        self._begin()
        rest = memoryview(frame)
        try:
            while rest:
                try:
                    rest = rest[self._socket.send(rest) :]
                except BlockingIOError:
                    if monotonic() >= until:
                        raise _LostError from None
                    self.wait(select.POLLOUT, until - monotonic())
        except OSError as error:
            raise _lost(error) from error
        self._is_used = False

    def receive(self) -> list[tuple[list[Any], bytes]]:
        """Return the frames that have arrived.

        Raises:
            _LostError: the connection is lost.
            ProtocolError: something else than frames has arrived.
        """
        self._begin()
        found: list[tuple[list[Any], bytes]] = []
        try:
            while True:
                if not self._reader.fill(self._socket):
                    if not found:
                        raise _LostError
                    break
                found += [(head, bytes(body)) for head, body, _ in self._reader.frames()]
        except BlockingIOError:
            pass
        except OSError as error:
            raise _lost(error) from error
        self._is_used = False
        return found

    def wait(self, events: int, seconds: float) -> None:
        """Wait until the socket is ready, but not for longer than a slice, and look for notices and interrupts."""
        poll = select.poll()
        poll.register(self._socket, events)
        poll.poll(max(0.0, min(seconds, _SLICE)) * 1000)
        notices.look()

    def close(self) -> None:
        """End the connection, also for children of this process that may have it."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the mover has ended it, or this is such a child
        self._socket.close()

    def _begin(self) -> None:
        if self._is_used:
            raise _LostError
        self._is_used = True


class Link:
    """Sends messages to the client over the mover, and takes those of the client."""

    def __init__(
        self, path: str, steps: str, take: Callable[[bytes], None], user: str, error: type[RuntimeError]
    ) -> None:
        """Connect to nothing yet.

        Args:
            path: the mover's socket.
            steps: the name of the file with this rank's step; empty if it has none.
            take: is called with each message of the client.
            user: what uses the connection, for messages.
            error: what is raised if the mover does not answer, or refuses something.
        """
        self._path = path
        self._user = user
        self._error = error
        self._steps = steps
        self._take = take
        self._stream: _Stream | None = None
        self.unanswered: dict[int, bytes] = {}
        """Messages that are sent again over each new connection, by their numbers."""

    def send(self, number: int, body: bytes, until: float) -> None:
        """Send a message, again over each new connection until `unanswered` does not have it any more.

        Raises:
            RuntimeError: there is no mover until this time of the monotonic clock.
        """
        self.unanswered[number] = body
        if not self._put(wire.frame([wire.CHANNEL_SEND], body)):
            self._connect(min(until, monotonic() + _PATIENCE))

    def announce(self, save: str) -> None:
        """Tell the mover that a save is in the outbox.

        Raises:
            RuntimeError: there is no mover.
        """
        until = monotonic() + _PATIENCE
        while not self._put(wire.frame([wire.CHANNEL_SAVED, save])):
            self._connect(until)

    def pump(self) -> None:
        """Take what has arrived.

        Raises:
            RuntimeError: the mover refuses something, or sends what is no message.
        """
        stream = self._stream
        if stream is None:
            return
        try:
            for head, body in stream.receive():
                if head[0] == wire.CHANNEL_DELIVER:
                    self._take(body)
                elif head[0] == wire.ERROR:
                    self._drop(stream)
                    raise self._refused(head)
        except _LostError:
            self._drop(stream)
        except wire.ProtocolError as error:
            self._drop(stream)
            raise self._error(f"this worker cannot read what the mover of its node sends: {error}") from None

    def look(self) -> None:
        """Take what has arrived, and connect again if the mover was replaced: it could not reach this worker.

        Raises:
            RuntimeError: the mover refuses something, or sends what is no message.
        """
        self.pump()
        if self._stream is None and os.path.exists(self._path):
            with suppress(self._error):
                self._connect(monotonic() + _GLANCE)

    def wait_for(self, is_done: Callable[[], bool], until: float, is_work: bool) -> bool:
        """Take what arrives until a condition holds; return False if it does not until this time.

        Args:
            is_done: the condition.
            until: a time of the monotonic clock.
            is_work: whether data is moved meanwhile, so that the wait counts as progress.

        Raises:
            RuntimeError: the mover refuses something, or is not there.
            KeyboardInterrupt: the task was cancelled.
        """
        while not is_done():
            now = monotonic()
            if now >= until:
                return False
            stream = self._stream
            if stream is None:
                # One that accepts and ends each connection must not be asked in a tight loop.
                sleep(_PAUSE)
                self._connect(min(until, now + _PATIENCE))
            else:
                stream.wait(select.POLLIN, until - now)
            if is_work:
                progress()
            self.pump()
        return True

    def end(self) -> None:
        """End the connection."""
        if self._stream is not None:
            self._drop(self._stream)

    def close(self, body: bytes) -> None:
        """Send a last message, and end the connection.

        If there is no mover any more, the message is lost. The client then learns from the next one
        that this process is gone.
        """
        try:
            frame = wire.frame([wire.CHANNEL_SEND], body)
            if not self._put(frame):
                with suppress(self._error):
                    self._connect(monotonic() + _LEAVING)
                    self._put(frame)
        finally:
            self.end()

    def _connect(self, until: float) -> None:
        """Connect, and send what is unanswered; raise if the mover refuses that or is not there until this time."""
        while self._stream is None:
            stream: _Stream | None = None
            try:
                stream = _Stream(self._path)
                self._greet(stream, until)
                for body in list(self.unanswered.values()):
                    stream.send(wire.frame([wire.CHANNEL_SEND], body), until)
                if self._stream is None:  # a signal handler may have connected meanwhile
                    self._stream, stream = stream, None
                return
            except (OSError, _LostError) as error:
                if isinstance(error, OSError) and error.errno is None:
                    raise  # a signal handler of the payload has raised, or the path is none
                why = error
            finally:
                if stream is not None:
                    stream.close()
            if monotonic() >= until:
                raise self._error(
                    f"the mover of this node does not answer at {self._path}: {why or 'it ends the connection'}. The "
                    "client starts it when the pool starts, and again when it has ended; look for its error in the log "
                    "of the node's agent"
                )
            sleep(_PAUSE)
            notices.look()

    def _put(self, frame: bytes) -> bool:
        """Send a frame; return False if there is no connection any more."""
        stream = self._stream
        if stream is None:
            return False
        try:
            stream.send(frame, monotonic() + _PATIENCE)
        except _LostError:
            self._drop(stream)
            return False
        return True

    def _greet(self, stream: _Stream, until: float) -> None:
        stream.send(wire.frame([wire.CHANNEL_ATTACH, wire.PROTOCOL, self._steps]), until)
        while True:
            for head, _ in stream.receive():
                if head[0] == wire.CHANNEL_HELLO:
                    return
                if head[0] == wire.ERROR:
                    raise self._refused(head)
            if monotonic() >= until:
                raise _LostError("it accepts the connection, and says nothing")
            stream.wait(select.POLLIN, until - monotonic())

    def _refused(self, head: list[Any]) -> RuntimeError:
        words = head[2] if len(head) > 2 else "it does not say why"
        return self._error(f"the mover of this node refuses {self._user} of this worker: {words}")

    def _drop(self, stream: _Stream) -> None:
        stream.close()
        if self._stream is stream:
            self._stream = None


def _lost(error: OSError) -> Exception:
    """Return the error of a lost connection, or that of a signal handler of the payload."""
    return error if error.errno is None else _LostError(str(error))
