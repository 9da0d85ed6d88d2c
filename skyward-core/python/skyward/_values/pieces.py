"""Messages in pieces: large binary data is sent from its own memory."""

from __future__ import annotations

from typing import Any, Final

import msgspec

Buffer = bytes | bytearray | memoryview

LARGE: Final = 1 << 16
"""Bytes. Larger binary data is sent from its own memory instead of being copied."""

_encode = msgspec.msgpack.Encoder().encode


class Blob:
    """Binary data that is not copied into the message: its MessagePack prefix, and the data."""

    __slots__ = ("data", "prefix")

    def __init__(self, prefix: bytes, data: Buffer) -> None:
        self.prefix = prefix
        self.data = data


def write(plain: Any, parts: list[Buffer]) -> None:
    """Append the pieces of a plain value, which may have blobs in it."""
    kind = type(plain)
    if kind is Blob:
        parts += (plain.prefix, plain.data)
    elif kind is list or kind is tuple:
        parts.append(_count(len(plain), 0x90, b"\xdc", b"\xdd"))
        for item in plain:
            write(item, parts)
    elif kind is dict:
        parts.append(_count(len(plain), 0x80, b"\xde", b"\xdf"))
        for key, item in plain.items():
            parts.append(_encode(key))
            write(item, parts)
    else:
        parts.append(_encode(plain))


def compact(parts: list[Buffer]) -> list[Buffer]:
    """Join small neighbours, so that a message has few pieces."""
    out: list[Buffer] = []
    small: list[Buffer] = []
    for part in parts:
        if len(part) < LARGE:
            small.append(part)
            continue
        if small:
            out.append(b"".join(small))
            small = []
        out.append(part)
    if small:
        out.append(b"".join(small))
    return out


def _count(length: int, fix: int, wide: bytes, wider: bytes) -> bytes:
    if length < 16:
        return bytes((fix | length,))
    return wide + length.to_bytes(2, "big") if length < 1 << 16 else wider + length.to_bytes(4, "big")
