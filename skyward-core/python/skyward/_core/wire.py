"""Frames and message numbers of the worker protocol (`docs/protocol.md`)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

import msgspec

from .memory import allocate

PROTOCOL: Final = 3
MAX_HEAD: Final = 1 << 20
MAX_FRAME_BYTES: Final = 1 << 30
PAYLOADS: Final = 256
"""The number of payloads that a worker keeps."""
LARGEST_PIECE: Final = 2 << 20
"""The most bytes of one piece of a file: of a node's store, or what a mover reads."""
LARGEST_WORD: Final = 1 << 20
"""The most bytes of what a worker and the client tell each other through the mover."""
DEEPEST: Final = 64
"""The most callers above a call."""
HEADER: Final = struct.Struct("<II")

# From the client to the agent.
HELLO: Final = 1
START: Final = 2
RESERVE_PORT: Final = 3
SIGNAL: Final = 4
STOP: Final = 5
PING: Final = 6
LOGS: Final = 7
SHUTDOWN: Final = 8
RECALL: Final = 9
WATCH: Final = 10
MOVER: Final = 11

# From the agent to the client.
AGENT_HELLO: Final = 33
STARTED: Final = 34
PORT: Final = 35
EXITED: Final = 36
PONG: Final = 37
LOG: Final = 38
LOG_END: Final = 39
STOPPED: Final = 40
ERROR: Final = 41
AGENT_BYE: Final = 42
PROGRESS: Final = 43
STACKS: Final = 44
RECALLED: Final = 45
AGENT_NOTICE: Final = 46
CALLS: Final = 47
AGENT_MOVER: Final = 48

# From the client to a worker.
ATTACH: Final = 65
LOAD: Final = 66
RUN: Final = 67
ACK: Final = 68
CREDIT: Final = 69
CANCEL: Final = 70
BYE: Final = 71
ADOPT: Final = 72
NOTICE: Final = 73
SIZE: Final = 74

# From a worker to the client.
WORKER_HELLO: Final = 97
RESULT: Final = 98
FAILURE: Final = 99
ITEM: Final = 100
REPORT: Final = 101
IMPORT: Final = 102

# From the client to a worker, over its second connection, for calls.
CALLS_ATTACH: Final = 129
OUTCOME: Final = 130
HELP: Final = 131
CANCEL_HELP: Final = 132
CALLS_ACK: Final = 133
READ: Final = 134
FETCHED: Final = 135
NOT_FETCHED: Final = 136

# From a worker to the client, over its second connection, for calls.
CALLS_HELLO: Final = 161
SUBMIT: Final = 162
WAIT: Final = 163
WAITED: Final = 164
HELPED: Final = 165
HELP_FAILED: Final = 166
REFUSE: Final = 167
DROP: Final = 168
WORKER_CALLS_ACK: Final = 169
FETCH: Final = 170
PIECE: Final = 171
MISSING: Final = 172

# From the client to a mover.
MOVER_ATTACH: Final = 193
STAT: Final = 194
MOVER_READ: Final = 195
MOVER_DROP: Final = 196
ATTEND: Final = 197
DELIVER: Final = 198
ASK: Final = 199
SETTLE: Final = 200
RESTORE: Final = 201
MOVER_WRITE: Final = 202
COMPLETE: Final = 203
DATA_ATTACH: Final = 204
FILL: Final = 205
PUBLISH: Final = 206

# From a mover to the client.
MOVER_HELLO: Final = 225
ENTRIES: Final = 226
MOVER_PIECE: Final = 227
DONE: Final = 228
FAILED: Final = 229
SENT: Final = 230
CLOSED: Final = 231
SAVED: Final = 232
STEP: Final = 233
RESTORED: Final = 234
MOVER_BUSY: Final = 235
ATTACHED: Final = 236

# From a worker to the mover.
CHANNEL_ATTACH: Final = 257
CHANNEL_SEND: Final = 258
CHANNEL_SAVED: Final = 259

# From the mover to a worker.
CHANNEL_HELLO: Final = 289
CHANNEL_DELIVER: Final = 290

CALLS_ASKED: Final = 1 << 31
"""The bit that a worker sets in the index that it writes into the pipe `wake` when it has calls."""

_SMALL: Final = 1 << 18
"""Bytes of the shared buffer. A frame that does not fit gets its own memory."""

_encode = msgspec.msgpack.Encoder().encode
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError)
"""What decoders raise for input that they refuse; `RecursionError` for lists nested too deeply."""
_decode_list = msgspec.msgpack.Decoder(list).decode


class ProtocolError(Exception):
    """The peer has violated the protocol; `number` is the refused message, or 0 if unknown."""

    def __init__(self, text: str, number: int = 0) -> None:
        super().__init__(text)
        self.number = number


def frame(head: list[Any], body: bytes | bytearray | memoryview = b"") -> bytes:
    """Encode a whole frame in one piece of memory."""
    packed = _encode(head)
    return b"".join((HEADER.pack(len(packed), len(body)), packed, body))


def prefix(head: list[Any], body_length: int) -> bytes:
    """Encode a frame up to its body; the body is sent from its own memory."""
    packed = _encode(head)
    return HEADER.pack(len(packed), body_length) + packed


class Source(Protocol):
    """An object from which bytes can be received."""

    def recv_into(self, buffer: memoryview, /) -> int:
        """Receive once; return the number of bytes, 0 at the end of the stream."""


class FrameReader:
    """Splits the bytes that arrive on a socket into frames.

    Small frames share one buffer, so their body is valid only until the next `fill`. A larger frame
    gets memory of exactly its size, which the receiver may keep.
    """

    __slots__ = ("_big", "_big_got", "_big_head", "_buffer", "_decode", "_end", "_start", "_view", "max_body")

    def __init__(self, max_body: int = MAX_FRAME_BYTES, decode: Callable[[memoryview], Any] = _decode_list) -> None:
        """Start with an empty buffer.

        Args:
            max_body: the most bytes of a body.
            decode: decodes a head into a message, or raises msgspec's `DecodeError`.
        """
        self.max_body = max_body
        self._decode = decode
        self._buffer = bytearray(_SMALL)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        self._big: memoryview | None = None
        self._big_got = 0
        self._big_head = 0

    def fill(self, source: Source) -> int:
        """Receive once; return the number of bytes, 0 at the end of the stream.

        Raises:
            BlockingIOError: a non-blocking socket has no data.
        """
        if self._big is not None:
            count = source.recv_into(self._big[self._big_got :])
            self._big_got += count
            return count
        count = source.recv_into(self._view[self._end :])
        self._end += count
        return count

    def frames(self) -> Iterator[tuple[Any, memoryview, bool]]:
        """Yield complete frames: message, body, and whether the body's memory may be kept.

        Raises:
            ProtocolError: a length is over its limit, or a head is not a known message.
        """
        if self._big is not None:
            if self._big_got < len(self._big):
                return
            whole, length = self._big, self._big_head
            self._big = None
            yield self._head(whole[:length]), whole[length:], True
        view, unpack = self._view, HEADER.unpack_from
        while self._end - self._start >= 8:
            start = self._start
            head_length, body_length = unpack(view, start)
            if head_length > MAX_HEAD or body_length > self.max_body:
                raise ProtocolError(
                    f"a frame of {head_length} + {body_length} bytes is over the limit of {MAX_HEAD} + {self.max_body}"
                )
            body_start = start + 8 + head_length
            stop = body_start + body_length
            if stop > self._end:
                self._make_room(start, head_length, body_length)
                return
            self._start = stop
            yield self._head(view[start + 8 : body_start]), view[body_start:stop], False
        if self._start == self._end:
            self._start = self._end = 0
        elif self._start:
            self._move(self._start)

    def _make_room(self, start: int, head_length: int, body_length: int) -> None:
        """Make room for the rest of a frame that has begun to arrive."""
        total = head_length + body_length
        if total + 8 <= _SMALL:
            self._move(start)
            return
        self._big = allocate(total)
        self._big_got = self._end - start - 8
        self._big[: self._big_got] = self._view[start + 8 : self._end]
        self._big_head = head_length
        self._start = self._end = 0

    def _move(self, start: int) -> None:
        length = self._end - start
        if start:
            self._view[:length] = self._view[start : self._end]
        self._start, self._end = 0, length

    def _head(self, packed: memoryview) -> Any:
        try:
            return self._decode(packed)
        except UNREADABLE as error:
            raise _explain(packed, error) from None


def _explain(packed: memoryview, error: Exception) -> ProtocolError:
    """Return why a head is refused, with its message number and, for a greeting, the version."""
    try:
        head = _decode_list(packed)
    except UNREADABLE:
        return ProtocolError(f"a frame's head is not a MessagePack array: {error}")
    if not head or type(head[0]) is not int:
        return ProtocolError("a frame's head does not start with a message number")
    number = head[0]
    if number in (HELLO, ATTACH, CALLS_ATTACH, MOVER_ATTACH, CHANNEL_ATTACH) and len(head) > 1 and head[1] != PROTOCOL:
        return ProtocolError(other_version(head[1]), number)
    return ProtocolError(f"cannot decode message {number}: {error}", number)


def other_version(version: object) -> str:
    """Return the error for a client with another protocol version."""
    return f"this side has version {PROTOCOL} of the worker protocol, the client has version {version!r}"
