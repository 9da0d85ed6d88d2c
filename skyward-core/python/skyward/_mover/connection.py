"""One connection of a client to the mover, which answers its requests one after another."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from time import monotonic
from typing import Final

import msgspec

from .._core import wire
from .._core.complaint import complain
from . import files, manifest
from .data_sets import DataSets
from .messages import (
    Ask,
    Attach,
    Attend,
    Complete,
    Deliver,
    Drop,
    Fill,
    Hello,
    Publish,
    Read,
    Request,
    Restore,
    Saved,
    Send,
    Settle,
    Stat,
    ToMover,
    WorkerHello,
    Write,
)
from .peer import Gone, Peer
from .relay import Relay
from .restored import Restored

_LARGEST_BODIES: Final = {
    Attach: manifest.LONGEST,
    Deliver: wire.LARGEST_WORD,
    Fill: wire.LARGEST_PIECE,
    Restore: manifest.LONGEST,
    Write: wire.LARGEST_PIECE,
}
"""The most bytes of a body; other messages have none."""
_BUSY: Final = 2.0
"""Seconds between two messages of a long answer: a client takes silence for a lost connection."""
_encode: Final = msgspec.msgpack.Encoder().encode


class Connection:
    """A connection of a client. Only the thread that serves it answers."""

    def __init__(self, peer: Peer, pool: str, relay: Relay, restored: Restored, data: DataSets) -> None:
        """Accept a client, which has not greeted yet.

        Args:
            peer: its socket.
            pool: the pool of the mover, to which the client must belong.
            relay: passes messages of workers on.
            restored: the folders of commits.
            data: the data sets.
        """
        self._peer = peer
        self._pool = pool
        self._relay = relay
        self._restored = restored
        self._data = data
        self._buffer = bytearray()
        """Memory for a piece, which is kept for the next one."""

    def check(self, hello: Hello) -> None:
        """Check the client's greeting.

        Raises:
            ProtocolError: its version or its pool is another one.
        """
        if hello.version != wire.PROTOCOL:
            raise wire.ProtocolError(wire.other_version(hello.version), wire.MOVER_ATTACH)
        if hello.pool != self._pool:
            text = f"this mover belongs to pool {self._pool}, not {hello.pool[:100]}"
            raise wire.ProtocolError(text, wire.MOVER_ATTACH)

    def greet(self) -> None:
        """Answer the client's greeting, or raise `Gone`."""
        self._peer.greeted(max(_LARGEST_BODIES.values()), may_be_busy=False)
        self._peer.send([wire.MOVER_HELLO, wire.PROTOCOL, os.getpid()])

    def answer(self, message: ToMover, body: memoryview) -> None:
        """Answer a message.

        Raises:
            Gone: the client is gone, or does not read.
            ProtocolError: it is no message of a client, or a greeting that is not valid.
        """
        if isinstance(message, Hello):
            self.check(message)
            self.greet()
            return
        if isinstance(message, WorkerHello | Send | Saved):
            number = int(message.__struct_config__.tag or 0)
            raise wire.ProtocolError(f"message {number} is one of workers, and not of clients", number)
        try:
            self._do(message, body)
        except files.Refused as refused:
            self._fail(message, refused)
        except Gone:
            raise
        except Exception as error:
            # The connection has other requests, which can be answered.
            complain(f"the mover cannot answer a request: {traceback.format_exc()}")
            self._fail(message, files.Refused("io", f"the mover failed: {type(error).__name__}: {error}"))

    def end(self) -> None:
        """Send nothing more of workers over this connection, which has ended."""
        self._relay.leave(self._peer)

    def _do(self, request: Request, body: memoryview) -> None:
        most = _LARGEST_BODIES.get(type(request), 0)
        if len(body) > most:
            words = f"the body of this message has at most {most} bytes, and {len(body)} have arrived"
            raise files.Refused("invalid", words)
        if isinstance(request, Stat):
            self._list(request.request, files.locate(request.artifact, request.path))
        elif isinstance(request, Read):
            self._read(request, files.locate(request.artifact, request.path))
        elif isinstance(request, Ask):
            self._peer.send([wire.STEP, request.request, self._relay.ask(request.channel, request.ask)])
        elif isinstance(request, Restore):
            self._restored_as(request, self._restored.restore(request.commit, body, self._busy(request.request)))
        elif isinstance(request, Complete):
            self._restored.complete(request.commit, self._busy(request.request))
            self._restored_as(request, True)
        elif isinstance(request, Attach):
            id, path, missing = self._data.attach(body, request.most, self._busy(request.request))
            self._attached(request.request, id, path, missing)
        elif isinstance(request, Publish):
            path = self._data.publish(request.id, self._busy(request.request))
            self._attached(request.request, request.id, path, [])
        else:
            self._act(request, body)
            self._peer.send([wire.DONE, request.request])

    def _act(self, request: Drop | Attend | Deliver | Settle | Write | Fill, body: memoryview) -> None:
        """Do what is answered by `Done`."""
        if isinstance(request, Write):
            self._restored.write(request.commit, request.path, request.offset, body)
        elif isinstance(request, Fill):
            self._data.fill(request.id, request.ranges, body, self._busy(request.request))
        elif isinstance(request, Deliver):
            self._relay.deliver(request.channel, request.received, bytes(body))
        elif isinstance(request, Attend):
            self._relay.attend(self._peer)
        elif isinstance(request, Settle):
            files.check_id("a save", request.save)
            self._relay.settle(request.save)
            self._restored.remove(request.save)
        else:
            files.drop(request.artifact)

    def _restored_as(self, request: Restore | Complete, complete: bool) -> None:
        self._peer.send([wire.RESTORED, request.request, self._restored.path(request.commit), complete])

    def _attached(self, request: int, id: str, path: bytes, missing: list[int]) -> None:
        self._peer.send([wire.ATTACHED, request, id, path, not missing], _encode(missing))

    def _busy(self, request: int) -> Callable[[], None]:
        """Return a function that now and then tells the client that its request takes its time."""
        told = monotonic()

        def tell() -> None:
            nonlocal told
            if monotonic() - told >= _BUSY:
                self._peer.send([wire.MOVER_BUSY, request])
                told = monotonic()

        return tell

    def _list(self, request: int, path: bytes) -> None:
        last: bytes | None = None
        # No other message comes between the parts of a list.
        with self._peer.uninterrupted():
            for entries in files.lists(path):
                if last is not None:
                    self._peer.send([wire.ENTRIES, request, True], last)
                last = entries
            self._peer.send([wire.ENTRIES, request, False], last or b"")

    def _read(self, read: Read, path: bytes) -> None:
        if read.length > wire.LARGEST_PIECE:
            words = f"a piece has at most {wire.LARGEST_PIECE} bytes, and {read.length} are requested"
            raise files.Refused("invalid", words)
        if len(self._buffer) < read.length:
            self._buffer = bytearray(read.length)
        piece = memoryview(self._buffer)[: read.length]
        identity, count = files.read(path, read.identity, read.offset, piece)
        self._peer.send([wire.MOVER_PIECE, read.request, *identity], piece[:count])

    def _fail(self, request: Request, refused: files.Refused) -> None:
        # Names of files need not be text.
        words = str(refused).encode(errors="replace").decode()
        self._peer.send([wire.FAILED, request.request, refused.kind, words, refused.number])
