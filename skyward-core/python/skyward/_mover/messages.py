"""The messages of clients to a mover, as types against which they are decoded."""

# This file does not use `from __future__ import annotations`, for the reason in `_core.messages`.

import msgspec

from .._core import wire
from .._core.messages import Count

Identity = tuple[int, int, int]
"""What changes with the content of a file: its inode, its size, and when it was modified, in
nanoseconds.
"""


class Hello(msgspec.Struct, tag=wire.MOVER_ATTACH, array_like=True):
    """The first message of a client to a mover."""

    version: int
    pool: str


class Stat(msgspec.Struct, tag=wire.STAT, array_like=True):
    """List what is at a path, and below it."""

    request: Count
    artifact: str
    """The id of the artifact in whose folder the path is; empty for a path of the node."""
    path: bytes


class Read(msgspec.Struct, tag=wire.MOVER_READ, array_like=True):
    """Read a piece of a file."""

    request: Count
    artifact: str
    path: bytes
    identity: Identity | None
    """The file must have this identity."""
    offset: Count
    length: Count


class Drop(msgspec.Struct, tag=wire.MOVER_DROP, array_like=True):
    """Remove an artifact."""

    request: Count
    artifact: str


Request = Stat | Read | Drop
ToMover = Hello | Request
