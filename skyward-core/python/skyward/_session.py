"""The worker's side of its connection: what has arrived, and what must not be lost until it is acknowledged."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
from collections import deque
from itertools import islice
from time import perf_counter_ns
from typing import Any, Final

import msgspec

from . import _values, _wire
from ._failure import simple_failure
from ._messages import Ack, Adopt, Attach, Cancel, Credit, Load, Notice, Run, Source, ToWorker
from ._notices import notices
from ._payload import Payload
from ._pipes import Opening, Pipes
from ._values import Buffer

_encode = msgspec.msgpack.Encoder().encode
_decode_message = msgspec.msgpack.Decoder(ToWorker).decode
_decode_source = msgspec.msgpack.Decoder(Source).decode
_EMPTY: Final = memoryview(b"\x80")
_PIECES: Final = 512
"""Pieces that one system call takes; systems allow 1024."""
_SEND_BUFFER: Final = 1 << 20
"""Large results leave in fewer turns of both sides."""
_PATIENCE: Final = 1 << 16
"""While an answer cannot be sent, tasks are still taken in up to this number, so that client and worker never wait
for each other."""
_MOST_REPORTS: Final = 256
_MOST_REPORTED: Final = 16 << 20
"""Reports that have not arrived, and their bytes, from which on a payload that reports waits."""
_MOST_SKIPPED: Final = 1 << 20
"""Runs that a client may leave out, because nobody waits for them any more."""

_ALERT_NS: Final = 100_000
"""How long a worker that has just answered looks for its next task before it sleeps. Whoever calls one task after
another has the next one here sooner than a sleeping process, on a processor that sleeps as well, is awake again."""


class LostDescriptorsError(Exception):
    """The payload closed descriptors that belong to the worker."""


Task = tuple[Run, Payload | None, dict[str, Any] | Buffer, dict[str, Any] | None]
"""A `Run` that has arrived, its payload, its arguments or the body of a call, and what to answer instead of running it.
(A class costs more.)"""


class Stream:
    """The items of one run: how many may be sent, and those that are not known to have arrived."""

    __slots__ = ("items", "limit", "next")

    def __init__(self, granted: int) -> None:
        self.limit = granted
        self.next = 0
        self.items: deque[tuple[int, list[Buffer]]] = deque()

    def advance(self, granted: int, arrived: int) -> None:
        """Take note of how far the client is: both numbers only grow, so late and repeated ones change nothing."""
        self.limit = max(self.limit, granted)
        while self.items and self.items[0][0] < arrived:
            self.items.popleft()


class Session:
    """Everything that outlives one connection, and the connection that there is at the moment."""

    def __init__(self, listener: socket.socket, generation: int, max_frame: int) -> None:
        """Start without a connection.

        Args:
            listener: where clients connect.
            generation: the world that this worker belongs to.
            max_frame: most bytes that a body may have, in either direction.
        """
        self.queue: deque[Task] = deque()
        self.received = 0
        """Runs up to this number have arrived."""
        self.payloads: dict[int, Payload] = {}
        """By slot."""
        self.evicted: list[Payload] = []
        """What has lost its slot; see `release_evicted`."""
        self.streams: dict[int, Stream] = {}
        self.running: int | None = None
        self.cancelled = False
        """The running task was cancelled."""
        self.leaving = False
        self.lost = False
        self.retained_bytes = 0
        self.max_frame = max_frame
        self._hello: list[Any] = []
        self._hello_body = b""
        self._generation = generation
        self._sequence = 0
        self._retained: deque[tuple[int, int, list[Buffer], int]] = deque()
        """Answers and reports that have not arrived: number, run (0: it is a report), frame and length."""
        self._reports = self._reported = 0
        """The reports among them, and their bytes."""
        self._listener = listener
        self._connection: socket.socket | Pipes | None = None
        self._opening: Opening | None = None
        """The connection, until its client has said hello."""
        self._reader = _wire.FrameReader(max_frame, _decode_message)
        self._greeted = False
        self._pumping = False
        self._sending = False
        self._outbox: deque[list[Buffer]] = deque()
        """Frames that came up while another was being sent, or while what has arrived was being taken in."""
        self._poll = select.poll()
        self._poll.register(listener, select.POLLIN)

    def greet_with(self, hello: list[Any], body: bytes) -> None:
        """Set the `Hello` that clients get. Before this, none may be waited for."""
        self._hello, self._hello_body = hello, body

    def detach(self) -> None:
        """Close the connection and the listener in a forked child, whose parent goes on with them."""
        self._poll = select.poll()
        self._greeted = False
        notices.main = None
        # A generator that goes on in the child ends where it would wait for credit.
        self.cancelled = True
        connection, self._connection = self._connection, None
        for opened in (self._opening, connection, self._listener):
            if opened is not None:
                # The payload may have closed it already.
                with contextlib.suppress(OSError):
                    opened.close()

    def poll(self) -> list[tuple[int, int]]:
        """Wait until something arrives; what `attend` is to be given."""
        return self._poll.poll()

    def poll_alert(self) -> list[tuple[int, int]]:
        """The same, at first without going to sleep: see `_ALERT_NS`."""
        poll, end = self._poll.poll, perf_counter_ns() + _ALERT_NS
        while perf_counter_ns() < end:
            events = poll(0)
            if events:
                return events
            os.sched_yield()
        return poll()

    def wait(self, longest: float | None = None) -> None:
        """Wait until something arrives, for at most so many seconds, and take it in."""
        self.attend(self._poll.poll(None if longest is None else longest * 1000))

    def pump(self) -> None:
        """Take in what has arrived, without waiting."""
        self.attend(self._poll.poll(0))

    @property
    def is_alone(self) -> bool:
        """Whether there is no connection."""
        return self._connection is None

    def release_evicted(self) -> None:
        """Release the payloads that have lost their slots, but for those that a waiting run still needs."""
        evicted, self.evicted = self.evicted, []
        for payload in evicted:
            if any(task[1] is payload for task in self.queue):
                self.evicted.append(payload)
            elif payload not in self.payloads.values():
                payload.release()

    def result(self, run: int, out: int, err: int, micros: int, parts: list[Buffer]) -> None:
        """Answer a run with its value."""
        self._finish(_wire.RESULT, run, out, err, micros, parts)

    def failure(self, run: int, out: int, err: int, micros: int, failure: dict[str, Any]) -> None:
        """Answer a run with a failure map."""
        self._finish(_wire.FAILURE, run, out, err, micros, [_encode(failure)])

    def report(self, run: int, body: bytes) -> None:
        """Send what a run has reported; 0: it belongs to none."""
        sequence = self._next_sequence()
        frame: list[Buffer] = [_wire.prefix([_wire.REPORT, sequence, run], len(body)), body]
        # Wherever a signal handler of the payload raises, the number is taken if and only if the report is kept.
        self._retained.append((sequence, 0, frame, len(body)))
        self._sequence = sequence
        self.retained_bytes += len(body)
        self._reports += 1
        self._reported += len(body)
        self._send(frame)

    def abandon(self) -> None:
        """End the connection, over which a frame may have gone or come by half; the client connects again."""
        self._sending = self._pumping = False
        self._drop()

    @property
    def may_report(self) -> bool:
        """Whether so few reports have not arrived that there may be more."""
        return self._reports < _MOST_REPORTS and self._reported < _MOST_REPORTED

    def item(self, run: int, parts: list[Buffer]) -> None:
        """Send the next item of a run that streams.

        Raises:
            TooLargeError: the item is larger than a frame may be.
        """
        stream = self.streams[run]
        length = sum(map(len, parts))
        if length > self.max_frame:
            raise _values.TooLargeError(f"item {stream.next} has {length} bytes, and a frame may have {self.max_frame}")
        frame = [_wire.prefix([_wire.ITEM, run, stream.next], length), *parts]
        stream.items.append((stream.next, frame))
        stream.next += 1
        self._send(frame)

    def may_send(self, run: int) -> bool:
        """Whether the stream has credit left."""
        stream = self.streams[run]
        return stream.next < stream.limit

    def _finish(self, number: int, run: int, out: int, err: int, micros: int, parts: list[Buffer]) -> None:
        length = len(parts[0]) if len(parts) == 1 else sum(map(len, parts))
        if length > self.max_frame:
            text = f"the result has {length} bytes, and a frame may have {self.max_frame}"
            failure = simple_failure("too_large", text)
            number, parts = _wire.FAILURE, [_encode(failure)]
            length = len(parts[0])
        sequence = self._next_sequence()
        head = _encode([number, sequence, run, out, err, micros])
        start = _wire.HEADER.pack(len(head), length)
        small = len(parts) == 1 and length < 1 << 16
        parts = [b"".join((start, head, parts[0]))] if small else [start + head, *parts]
        self._retained.append((sequence, run, parts, length))
        self._sequence = sequence
        self.retained_bytes += length
        self._send(parts)

    def _next_sequence(self) -> int:
        """The number of the next answer or report, also where one was kept and its number was not noted."""
        retained = self._retained
        return max(self._sequence, retained[-1][0] if retained else 0) + 1

    def _acknowledge(self, sequence: int) -> None:
        retained = self._retained
        while retained and retained[0][0] <= sequence:
            _, run, _, length = retained.popleft()
            self.retained_bytes -= length
            if run == 0:
                self._reports -= 1
                self._reported -= length
            elif self.streams:
                self.streams.pop(run, None)

    def attend(self, events: list[tuple[int, int]]) -> None:
        """Look after the sockets that `poll` names."""
        for descriptor, event in events:
            if event & select.POLLNVAL:
                self.lost = True
                raise LostDescriptorsError("that of its connection")
            if self._connection is not None and descriptor == self._connection.fileno():
                self._read()
            elif descriptor == self._listener.fileno():
                self._accept()

    def _accept(self) -> None:
        # Several may wait: a client that got no answer while a task ran has come again. The last one counts.
        while True:
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            self._replace(connection)

    def _replace(self, connection: socket.socket) -> None:
        # What the old client sent before it was replaced has arrived, and is not lost.
        self._read()
        self._drop()
        connection = raise_descriptor(connection)
        connection.setblocking(False)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        self._connection = connection
        self._opening = Opening(connection)
        self._reader = _wire.FrameReader(self.max_frame, _decode_message)
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
        except _wire.ProtocolError as error:
            self._refuse(error.number, str(error))
        except _wire.UNREADABLE as error:
            self._refuse(_wire.LOAD, f"a payload cannot be understood: {error}")
        except OSError as error:
            self._broken(error)
        finally:
            self._pumping = False
            self._send_waiting()

    def _refuse(self, number: int, text: str) -> None:
        if self._connection is not None and not self._sending:
            try:
                self._connection.send(_wire.frame([_wire.ERROR, number, text]))
            except OSError:
                pass
        self._drop()

    def _handle(self, message: ToWorker, body: memoryview, owned: bool) -> None:
        if type(message) is Run and self._greeted:
            if self._retained:
                self._acknowledge(message.acknowledged)
            if message.run != self.received + 1:
                if message.run <= self.received:
                    return  # it came over the connection before
                if message.run - self.received > _MOST_SKIPPED:
                    text = f"run {message.run} came after run {self.received}"
                    raise _wire.ProtocolError(text, _wire.RUN)
            self.received = message.run
            arguments: dict[str, Any] | Buffer = {}
            failure = None
            if message.depth is not None:
                arguments = body if owned else bytes(body)
            elif body != _EMPTY:
                try:
                    arguments = (_values.decode_owned if owned else _values.decode)(body)
                    if type(arguments) is not dict:
                        raise TypeError("the arguments are not a map")
                except Exception as error:
                    failure = simple_failure("arguments", f"the arguments cannot be decoded: {error}", path="")
            if message.granted:
                self.streams[message.run] = Stream(message.granted)
            self.queue.append((message, self.payloads.get(message.payload), arguments, failure))
        elif type(message) is Attach:
            self._attach(message)
        elif type(message) is Adopt:
            self._adopt()
        elif not self._greeted:
            raise _wire.ProtocolError("the first message must be Hello")
        elif type(message) is Ack:
            self._acknowledge(message.sequence)
        elif type(message) is Credit:
            stream = self.streams.get(message.run)
            if stream is not None:
                stream.advance(message.granted, message.arrived)
        elif type(message) is Cancel:
            self._cancel(message.run)
        elif type(message) is Load:
            self._load(message, body)
        elif type(message) is Notice:
            # Whoever looked at the connection tells the payload, once no frame is half read or half written.
            notices.give(message.kind, message.seconds)
        else:
            self.leaving = True

    def _load(self, message: Load, body: memoryview) -> None:
        """Give a payload its slot. One that is there, in any slot, stays the same, with the state of its modules."""
        old = self.payloads.get(message.slot)
        if old is not None and old.digest == message.digest:
            return
        known = (*self.payloads.values(), *self.evicted)
        payload = next((payload for payload in known if payload.digest == message.digest), None)
        self.payloads[message.slot] = payload or Payload(message.digest, _decode_source(body))
        if old is not None:
            self.evicted.append(old)

    def _adopt(self) -> None:
        """Go on over the descriptors that came with the message."""
        pipes = self._opening.pipes(move_descriptor) if self._opening is not None else None
        if pipes is None or self._connection is None:
            raise _wire.ProtocolError("two descriptors come with this message, before any other", _wire.ADOPT)
        self._poll.unregister(self._connection)
        self._connection, self._opening = pipes, None
        self._poll.register(pipes, select.POLLIN)

    def _attach(self, hello: Attach) -> None:
        """A client's `Hello`: say what has arrived, and send again what the client does not have."""
        if hello.version != _wire.PROTOCOL:
            raise _wire.ProtocolError(_wire.other_version(hello.version), _wire.ATTACH)
        if hello.generation != self._generation:
            text = f"the worker belongs to generation {self._generation}, not {hello.generation}"
            raise _wire.ProtocolError(text, _wire.ATTACH)
        self._greeted = True
        self._end_opening()
        self._send([_wire.frame([*self._hello, self.received], self._hello_body)])
        self._acknowledge(hello.acknowledged)
        for awaited in hello.streams:
            stream = self.streams.get(awaited.run)
            if stream is not None:
                stream.advance(awaited.granted, awaited.arrived)
                for _, parts in list(stream.items):
                    self._send(parts)
        for _, _, parts, _ in list(self._retained):
            self._send(parts)

    def _cancel(self, run: int) -> None:
        if run == self.running:
            self.cancelled = True
            return
        for place, waiting in enumerate(self.queue):
            if waiting[0].run == run:
                del self.queue[place]
                text = "the task was cancelled before it began"
                self.failure(run, 0, 0, 0, simple_failure("cancelled", text))
                return

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
        """Send what had to wait for another frame."""
        while self._outbox and not self._sending and not self._pumping:
            self._send(self._outbox.popleft())

    def _send_when_possible(self, connection: socket.socket | Pipes, rest: deque[memoryview]) -> int:
        """Wait until the client takes more; meanwhile take in what it sends, or a client that replaces it."""
        may_read = len(self.queue) < _PATIENCE
        wanted = select.POLLIN if may_read else 0
        incoming = outgoing = connection.fileno()
        if type(connection) is Pipes:
            outgoing = connection.outgoing
            self._poll.modify(incoming, wanted)
            self._poll.register(outgoing, select.POLLOUT)
        else:
            self._poll.modify(incoming, select.POLLOUT | wanted)
        try:
            for descriptor, event in self._poll.poll():
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
            # No system call has failed: a signal handler of the payload has raised, `TimeoutError` for one.
            self.abandon()
            raise error
        if error.errno in (errno.EBADF, errno.ENOTSOCK):
            self.lost = True
            raise LostDescriptorsError("that of its connection")
        # A client that is gone may have left requests behind, which it will ask for when it comes back.
        self._read()
        self._drop()


def raise_descriptor(opened: socket.socket) -> socket.socket:
    """The same socket at a high descriptor, out of the way of payloads that close the low ones."""
    return socket.socket(fileno=move_descriptor(opened.detach()))


def move_descriptor(descriptor: int) -> int:
    """The same as a high descriptor; the low one is closed."""
    import fcntl

    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, high_descriptor())
    os.close(descriptor)
    return moved


def high_descriptor() -> int:
    """The lowest of the numbers that this process may give to descriptors of its own."""
    most = os.sysconf("SC_OPEN_MAX")
    return 960 if most < 0 or most >= 1024 else max(most - 32, 3)
