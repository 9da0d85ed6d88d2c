"""The worker's side of its connection to the client.

The session keeps what has arrived, and what must not be lost before the client acknowledges it.
"""

from __future__ import annotations

import socket
from collections import deque
from typing import Any, Final

import msgspec

from .._core import state, wire
from .._core.descriptors import NO_ROOM, accept, raise_descriptor
from .._core.messages import Ack, Adopt, Attach, Cancel, Credit, Load, Notice, Run, Size, Source, ToWorker
from .._sky.notices import notices
from .._values import codec
from .._values.codec import Buffer
from .._values.errors import TooLargeError
from .connection import Connection, LostDescriptorsError
from .failure import simple_failure
from .payload import Payload

__all__ = ["NO_ROOM", "LostDescriptorsError", "Session", "Stream", "Task", "accept", "raise_descriptor"]

_encode = msgspec.msgpack.Encoder().encode
_decode_message = msgspec.msgpack.Decoder(ToWorker).decode
_decode_source = msgspec.msgpack.Decoder(Source).decode
_EMPTY: Final = memoryview(b"\x80")
_PATIENCE: Final = 1 << 16
"""The most waiting tasks. While an answer cannot be sent, the worker still reads tasks up to this
number, so that client and worker never wait for each other.
"""
_MOST_REPORTS: Final = 256
_MOST_REPORTED: Final = 16 << 20
"""From this many unacknowledged reports, or bytes of them, `sky.report` waits."""
_MOST_SKIPPED: Final = 1 << 20
"""The most run numbers that a client may skip, because nobody waits for those runs any more."""


Task = tuple[Run, Payload | None, dict[str, Any] | Buffer, dict[str, Any] | None]
"""A `Run` that has arrived, its payload, its arguments or the body of a call, and the failure to
answer instead of running it. (A class would be slower.)
"""


Warnings = list[tuple[str, str]]
"""What had no effect in a run, and what to do about each."""


class Stream:
    """The items of one run: how many may be sent, and those that are not acknowledged."""

    __slots__ = ("items", "limit", "next")

    def __init__(self, granted: int) -> None:
        self.limit = granted
        self.next = 0
        self.items: deque[tuple[int, list[Buffer]]] = deque()

    def advance(self, granted: int, arrived: int) -> None:
        """Record the client's position. Late or repeated numbers change nothing: they only grow."""
        self.limit = max(self.limit, granted)
        while self.items and self.items[0][0] < arrived:
            self.items.popleft()


class Session(Connection):
    """All state that outlives a connection, and the current connection, if any."""

    def __init__(self, listener: socket.socket, generation: int, max_frame_bytes: int) -> None:
        """Start without a connection.

        Args:
            listener: the socket on which clients connect.
            generation: the generation of this worker.
            max_frame_bytes: the most bytes of a body, in either direction.
        """
        super().__init__(listener, max_frame_bytes, _decode_message)
        self.queue: deque[Task] = deque()
        self.received = 0
        """The highest number of a run that has arrived."""
        self.payloads: dict[int, Payload] = {}
        """The payloads, by number."""
        self.declared: list[Payload] = []
        """The payloads that the worker has imported before it was ready."""
        self.evicted: list[Payload] = []
        """Payloads that have lost their number; see `release_evicted`."""
        self.streams: dict[int, Stream] = {}
        self.running: int | None = None
        self._imports = 0
        """The last run whose payload began to be imported, and was not imported since; 0 for none."""
        self.cancelled = False
        """Whether the running task was cancelled."""
        self.leaving = False
        """Whether the worker ends when its queue is empty."""
        self.terminated = False
        """Whether the worker ends as soon as possible."""
        self.retained_bytes = 0
        self._hello: list[Any] = []
        self._hello_body = b""
        self._generation = generation
        self._sequence = 0
        self._retained: deque[tuple[int, int, list[Buffer], int]] = deque()
        """Unacknowledged answers and reports: number, run (0 for a report), frame and length in
        bytes.
        """
        self._reports = self._reported = 0
        """The number of reports among them, and their bytes."""

    def greet_with(self, hello: list[Any], body: bytes) -> None:
        """Set the `Hello` that clients receive. Do not wait for clients before this."""
        self._hello, self._hello_body = hello, body

    def detach(self) -> None:
        """Close the connection and the listener in a forked child; its parent keeps them."""
        notices.main = None
        # A generator that continues in the child ends when it would wait for credit.
        self.cancelled = True
        super().detach()

    def release_evicted(self) -> None:
        """Release payloads that have lost their numbers, unless a waiting run still needs them."""
        evicted, self.evicted = self.evicted, []
        for payload in evicted:
            if any(task[1] is payload for task in self.queue):
                self.evicted.append(payload)
            elif payload not in self.payloads.values():
                payload.release()

    def result(
        self, run: int, out: int, err: int, micros: int, parts: list[Buffer], warnings: Warnings | None = None
    ) -> None:
        """Answer a run with its value."""
        self._finish(wire.RESULT, run, out, err, micros, parts, warnings)

    def failure(
        self, run: int, out: int, err: int, micros: int, failure: dict[str, Any], warnings: Warnings | None = None
    ) -> None:
        """Answer a run with a failure map."""
        self._finish(wire.FAILURE, run, out, err, micros, [_encode(failure)], warnings)

    def report(self, run: int, body: bytes) -> None:
        """Send a report of a run, or of no run if the number is 0."""
        sequence = self._next_sequence()
        frame: list[Buffer] = [wire.prefix([wire.REPORT, sequence, run], len(body)), body]
        # A signal handler of the payload may raise anywhere here. The number is used if and only if
        # the report is kept.
        self._retained.append((sequence, 0, frame, len(body)))
        self._sequence = sequence
        self.retained_bytes += len(body)
        self._reports += 1
        self._reported += len(body)
        self._send(frame)

    @property
    def may_report(self) -> bool:
        """Whether more reports may be sent before earlier ones are acknowledged."""
        return self._reports < _MOST_REPORTS and self._reported < _MOST_REPORTED

    def importing(self, begins: bool) -> None:
        """Report that the payload of the running task begins to be imported, or has been imported."""
        if self.running is not None:
            self._imports = self.running if begins else 0
            self._send([wire.frame([wire.IMPORT, self.running, begins])])

    def item(self, run: int, parts: list[Buffer]) -> None:
        """Send the next item of a run that streams.

        Raises:
            TooLargeError: the item is larger than a frame may be.
        """
        stream = self.streams[run]
        length = sum(map(len, parts))
        if length > self.max_frame_bytes:
            raise TooLargeError(f"item {stream.next} has {length} bytes; a frame holds at most {self.max_frame_bytes}")
        frame = [wire.prefix([wire.ITEM, run, stream.next], length), *parts]
        stream.items.append((stream.next, frame))
        stream.next += 1
        self._send(frame)

    def may_send(self, run: int) -> bool:
        """Return whether the stream has credit left."""
        stream = self.streams[run]
        return stream.next < stream.limit

    def _finish(
        self, number: int, run: int, out: int, err: int, micros: int, parts: list[Buffer], warnings: Warnings | None
    ) -> None:
        length = len(parts[0]) if len(parts) == 1 else sum(map(len, parts))
        if length > self.max_frame_bytes:
            text = f"the result has {length} bytes; a frame holds at most {self.max_frame_bytes}"
            failure = simple_failure("too_large", text)
            number, parts = wire.FAILURE, [_encode(failure)]
            length = len(parts[0])
        sequence = self._next_sequence()
        numbers = [number, sequence, run, out, err, micros]
        head = _encode([*numbers, warnings] if warnings else numbers)
        start = wire.HEADER.pack(len(head), length)
        small = len(parts) == 1 and length < 1 << 16
        parts = [b"".join((start, head, parts[0]))] if small else [start + head, *parts]
        self._retained.append((sequence, run, parts, length))
        self._sequence = sequence
        self.retained_bytes += length
        self._send(parts)

    def _next_sequence(self) -> int:
        """Return the next number of an answer or report, also if the last one was not recorded."""
        retained, last = self._retained, self._sequence
        return (retained[-1][0] if retained and retained[-1][0] > last else last) + 1

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

    def _handle(self, message: ToWorker, body: memoryview, owned: bool) -> None:
        if type(message) is Run and self._greeted:
            if self._retained:
                self._acknowledge(message.acknowledged)
            if message.run != self.received + 1:
                if message.run <= self.received:
                    return  # it has arrived over an earlier connection
                if message.run - self.received > _MOST_SKIPPED:
                    text = f"run {message.run} arrived after run {self.received}: too many runs are missing"
                    raise wire.ProtocolError(text, wire.RUN)
            self.received = message.run
            arguments: dict[str, Any] | Buffer = {}
            failure = None
            if message.depth is not None:
                arguments = body if owned else bytes(body)
            elif body != _EMPTY:
                try:
                    arguments = (codec.decode_owned if owned else codec.decode)(body)
                    if type(arguments) is not dict:
                        raise TypeError("they are not a map")
                except Exception as error:
                    failure = simple_failure("arguments", f"cannot decode the arguments: {error}", path="")
            if message.granted:
                self.streams[message.run] = Stream(message.granted)
            self.queue.append((message, self.payloads.get(message.payload), arguments, failure))
        elif type(message) is Attach:
            self._attach(message)
        elif type(message) is Adopt:
            self._adopt()
        elif not self._greeted:
            raise wire.ProtocolError("the first message must be Hello")
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
            # The caller of this function notifies the payload, when no frame is half read or half
            # written.
            notices.give(message.kind, message.seconds)
        elif type(message) is Size:
            state.most_workers = message.workers
        else:
            self.leaving = True

    def _may_read(self) -> bool:
        return len(self.queue) < _PATIENCE

    def _must_go_on(self) -> bool:
        return self.terminated or (self.cancelled and self.running is not None)

    def _load(self, message: Load, body: memoryview) -> None:
        """Keep a payload under its number.

        A payload that is loaded already, under any number, is kept with the state of its modules.
        """
        old = self.payloads.get(message.payload)
        if old is not None and old.digest == message.digest:
            return
        known = (*self.payloads.values(), *self.evicted, *self.declared)
        payload = next((payload for payload in known if payload.digest == message.digest), None)
        self.payloads[message.payload] = payload or Payload(message.digest, _decode_source(body))
        if old is not None:
            self.evicted.append(old)

    def _attach(self, hello: Attach) -> None:
        """Answer a client's `Hello`: report what has arrived, and send again what it lacks."""
        if hello.version != wire.PROTOCOL:
            raise wire.ProtocolError(wire.other_version(hello.version), wire.ATTACH)
        if hello.generation != self._generation:
            text = f"the worker belongs to generation {self._generation}, not {hello.generation}"
            raise wire.ProtocolError(text, wire.ATTACH)
        self._greeted = True
        self._end_opening()
        self._send([wire.frame([*self._hello, self.received], self._hello_body)])
        self._acknowledge(hello.acknowledged)
        for awaited in hello.streams:
            stream = self.streams.get(awaited.run)
            if stream is not None:
                stream.advance(awaited.granted, awaited.arrived)
                for _, parts in list(stream.items):
                    self._send(parts)
        for _, _, parts, _ in list(self._retained):
            self._send(parts)
        if self.running is not None:
            self.importing(self._imports == self.running)

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
