"""The messages of clients and of workers to a mover, as types against which they are decoded."""

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


class Attend(msgspec.Struct, tag=wire.ATTEND, array_like=True):
    """Send what workers say, and which saves wait, over this connection from now on."""

    request: Count


class Deliver(msgspec.Struct, tag=wire.DELIVER, array_like=True):
    """Pass the body on to a worker, unless it is empty, and forget what has arrived from it."""

    request: Count
    channel: Count
    received: Count
    """The number of the last message of the channel that has arrived."""


class Ask(msgspec.Struct, tag=wire.ASK, array_like=True):
    """Ask a worker to wait before its next step, and say at which one it is."""

    request: Count
    channel: Count
    ask: Count


class Settle(msgspec.Struct, tag=wire.SETTLE, array_like=True):
    """Remove a save, which has been brought to the storage or is not wanted."""

    request: Count
    save: str


class Restore(msgspec.Struct, tag=wire.RESTORE, array_like=True):
    """Prepare the folder of a commit, or say that it is there. The body is the commit's manifest."""

    request: Count
    commit: str


class Write(msgspec.Struct, tag=wire.MOVER_WRITE, array_like=True):
    """Write the body into a file of a prepared folder."""

    request: Count
    commit: str
    path: bytes
    offset: Count


class Complete(msgspec.Struct, tag=wire.COMPLETE, array_like=True):
    """Check the files of a prepared folder, and publish it."""

    request: Count
    commit: str


class Attach(msgspec.Struct, tag=wire.DATA_ATTACH, array_like=True):
    """Use a data set, and say which of its files are missing. The body is its manifest."""

    request: Count
    most: Count
    """The most bytes of all data sets of the machine; 0 if there is no limit."""


class Fill(msgspec.Struct, tag=wire.FILL, array_like=True):
    """Write ranges of files of a data set. The body is their bytes, one after another."""

    request: Count
    id: str
    ranges: list[tuple[Count, Count, Count]]
    """Of each the index of its file in the manifest, the offset and the length."""


class Publish(msgspec.Struct, tag=wire.PUBLISH, array_like=True):
    """End the fill of a data set, of which all files must be there."""

    request: Count
    id: str


class WorkerHello(msgspec.Struct, tag=wire.CHANNEL_ATTACH, array_like=True):
    """The first message of a worker to a mover."""

    version: int
    steps: str
    """The id of its file of steps; empty if it has none, because it has no checkpoints."""


class Send(msgspec.Struct, tag=wire.CHANNEL_SEND, array_like=True):
    """Pass the body on to the client."""


class Saved(msgspec.Struct, tag=wire.CHANNEL_SAVED, array_like=True):
    """A save is complete, and in the outbox."""

    save: str


Request = Stat | Read | Drop | Attend | Deliver | Ask | Settle | Restore | Write | Complete | Attach | Fill | Publish
ToMover = Hello | Request | WorkerHello | Send | Saved
