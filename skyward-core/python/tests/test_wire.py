"""Frames: split into any pieces, malformed, and too long."""

from __future__ import annotations

import contextlib
import socket
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skyward._core import messages, wire
from skyward._core.wire import FrameReader, ProtocolError


class Pieces:
    """A socket whose data arrives in pieces of given sizes."""

    def __init__(self, data: bytes, sizes: list[int]) -> None:
        self.data = memoryview(data)
        self.sizes = sizes

    def recv_into(self, target: memoryview) -> int:
        wanted = self.sizes.pop() if self.sizes else 1 << 20
        count = min(wanted, len(target), len(self.data))
        assert count or not len(self.data), "asked to receive nothing"
        target[:count] = self.data[:count]
        self.data = self.data[count:]
        return count


def read(data: bytes, sizes: list[int], max_body: int = 1 << 30) -> list[tuple[list[Any], bytes, bool]]:
    reader, pieces = FrameReader(max_body), Pieces(data, sizes)
    found = []
    while reader.fill(pieces):
        found += [(head, bytes(body), owned) for head, body, owned in reader.frames()]
    return found


bodies = st.binary(max_size=200) | st.integers(0, 600_000).map(lambda size: bytes(range(250)) * (size // 250))


@given(st.lists(st.tuples(st.integers(0, 200), bodies), max_size=8), st.lists(st.integers(1, 300_000), max_size=20))
def test_frames_come_out_as_they_went_in(frames: list[tuple[int, bytes]], sizes: list[int]) -> None:
    data = b"".join(wire.frame([number, "x" * number], body) for number, body in frames)
    found = read(data, sizes)
    assert [(head, body) for head, body, _ in found] == [([number, "x" * number], body) for number, body in frames]


@given(st.binary(max_size=300), st.lists(st.integers(1, 40), max_size=20))
def test_no_bytes_break_the_reader(data: bytes, sizes: list[int]) -> None:
    with contextlib.suppress(ProtocolError):
        read(data, sizes, max_body=1000)


def test_byte_by_byte() -> None:
    data = wire.frame([1], b"ab") + wire.frame([2])
    assert [(head, body) for head, body, _ in read(data, [1] * len(data))] == [([1], b"ab"), ([2], b"")]


def test_large_bodies_are_the_receivers_to_keep() -> None:
    body = bytes(1 << 20)
    [(head, got, owned), (_, _, small)] = read(wire.frame([7], body) + wire.frame([8], b"x"), [])
    assert (head, got == body, owned, small) == ([7], True, True, False)


@pytest.mark.parametrize(
    "data",
    [
        wire.HEADER.pack(wire.MAX_HEAD + 1, 0),
        wire.HEADER.pack(1, 1001),
        wire.HEADER.pack(1, 0) + b"\xc1",
        wire.HEADER.pack(0, 0),
        wire.HEADER.pack(1, 0) + b"\x80",
        wire.HEADER.pack(3, 0) + b"\x91\xa1\xff",
        wire.HEADER.pack(5000, 0) + b"\x91" * 5000,
    ],
)
def test_malformed_frames_are_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        read(data, [], max_body=1000)


@pytest.mark.parametrize(
    ("head", "number", "text"),
    [
        ([], 0, "does not start with"),
        ([True], 0, "does not start with"),
        (["x"], 0, "does not start with"),
        ({}, 0, "not a MessagePack array"),
        ([250], 250, "250"),
        ([wire.PING, 1], wire.PING, "array"),
        ([wire.PING, 1, float("inf")], wire.PING, "$[2]"),
        ([wire.LOGS, 1, 0, -1, 0], wire.LOGS, "$[3]"),
        ([wire.LOGS, 1, 0, 1 << 63, 0], wire.LOGS, ""),
        ([wire.HELLO, 2, {"of": "another version"}], wire.HELLO, "version 3"),
    ],
)
def test_messages_are_checked_before_they_reach_the_code(head: object, number: int, text: str) -> None:
    decode = msgspec.msgpack.Decoder(messages.ToAgent).decode
    packed = msgspec.msgpack.encode(head)
    reader = FrameReader(decode=decode)
    reader.fill(Pieces(wire.HEADER.pack(len(packed), 0) + packed, []))
    with pytest.raises(ProtocolError) as caught:
        list(reader.frames())
    assert caught.value.number == number
    assert text in str(caught.value)


def test_what_a_later_version_appends_is_ignored() -> None:
    decode = msgspec.msgpack.Decoder(messages.ToWorker).decode
    assert decode(msgspec.msgpack.encode([wire.CANCEL, 7, "new"])) == messages.Cancel(7)


def test_a_socket_without_data_raises() -> None:
    left, right = socket.socketpair()
    with left, right:
        right.setblocking(False)
        with pytest.raises(BlockingIOError):
            FrameReader().fill(right)
