"""One connection of a worker to the mover: a channel between the client and what the worker asks of it."""

from __future__ import annotations

import os
from typing import Final

from .._core import artifacts, wire
from .._core.complaint import complain
from . import files
from .messages import Saved, Send, ToMover, WorkerHello
from .outbox import Outbox
from .outlet import Outlet
from .peer import Peer
from .relay import Relay
from .steps import Steps

_MOST_WAITING: Final = 256
_MOST_WAITING_BYTES: Final = 8 << 20
"""The most messages that wait until the worker reads them, and their bytes."""


class WorkerConnection:
    """A connection of a worker. Its thread receives; what the client says is sent by another one."""

    def __init__(self, peer: Peer, hello: WorkerHello, home: str, relay: Relay, outbox: Outbox) -> None:
        """Answer the worker's greeting, and open its channel.

        Args:
            peer: its socket.
            hello: its greeting.
            home: the absolute path of the node's folder.
            relay: what passes messages on.
            outbox: where saves are.

        Raises:
            Gone: the worker has gone.
            ProtocolError: its version is another one, or its file of steps is not there.
        """
        if hello.version != wire.PROTOCOL:
            raise wire.ProtocolError(wire.other_version(hello.version), wire.CHANNEL_ATTACH)
        self._peer = peer
        self._relay = relay
        self._outbox = outbox
        self._steps = Steps(home, hello.steps) if hello.steps else None
        try:
            # A worker reads what the client says when it comes to it, maybe after hours.
            peer.greeted(wire.LARGEST_WORD, may_be_busy=True)
            self._outlet = Outlet(peer)
        except BaseException:
            self._close_steps()
            raise
        self._channel = relay.open(self)
        try:
            # A worker that was greeted has its channel.
            peer.send([wire.CHANNEL_HELLO, wire.PROTOCOL, os.getpid()])
        except BaseException:
            self.end()
            raise

    def answer(self, message: ToMover, body: memoryview) -> None:
        """Do what a message of the worker asks for.

        Raises:
            ProtocolError: it is no message of a worker, or cannot be accepted.
        """
        if isinstance(message, Send):
            self._relay.send(self._channel, bytes(body))
        elif isinstance(message, Saved):
            if not artifacts.is_id(message.save):
                words = f"the id of a save has {artifacts.ID_FORM}, unlike {message.save[:100]!r}"
                raise wire.ProtocolError(words, wire.CHANNEL_SAVED)
            self._relay.announce(message.save)
        else:
            number = int(message.__struct_config__.tag or 0)
            raise wire.ProtocolError(f"message {number} is not one that a worker sends after its Hello", number)

    def deliver(self, body: bytes) -> None:
        """Pass a message of the client on. A worker that leaves too many unread loses its connection."""
        count, size = self._outlet.load()
        if count >= _MOST_WAITING or size + len(body) > _MOST_WAITING_BYTES:
            complain(f"a worker has left {count} messages of {size} bytes unread; the mover ends its connection")
            self._outlet.end()
            return
        self._outlet.put(lambda: ([wire.CHANNEL_DELIVER], body), len(body))

    def ask(self, number: int) -> int:
        """Store an ask, and return the worker's step, or raise `Refused`."""
        if self._steps is None:
            raise files.Refused("invalid", "the worker of this channel has no checkpoints, so it is at no step")
        return self._steps.ask(number)

    def end(self) -> None:
        """Report what the worker has left, close its channel, and remove what it has left incomplete."""
        self._outlet.end()
        self._close_steps()
        self._relay.look()
        self._relay.close(self._channel)
        self._outbox.sweep()

    def _close_steps(self) -> None:
        if self._steps is not None:
            self._steps.close()
