"""The relay: it passes messages between workers and the client that attends, and tells it of saves.

A message of a worker is kept until the client has acknowledged it, because connections break. The
mover does not read what it passes on.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from functools import partial
from typing import Final, Protocol

from .._core import wire
from .._core.complaint import complain
from .files import Refused
from .outbox import Outbox
from .outlet import Frame, Outlet
from .peer import Peer

_MOST_KEPT: Final = 256
_MOST_KEPT_BYTES: Final = 8 << 20
"""The most messages of a channel that wait for an acknowledgement, and their bytes."""
_MOST_CLOSED: Final = 256
_MOST_CLOSED_BYTES: Final = 64 << 20
"""The most closed channels that are kept for a client, and the bytes of all their messages."""


class Worker(Protocol):
    """A worker, as the relay sees it."""

    def deliver(self, body: bytes) -> None:
        """Pass a message of the client on, without waiting for the worker."""

    def ask(self, number: int) -> int:
        """Store an ask, and return the worker's step, or raise `Refused`."""


class Channel:
    """The messages of one connection of a worker."""

    def __init__(self, number: int, worker: Worker) -> None:
        """Begin without messages."""
        self.number = number
        self.worker: Worker | None = worker
        """None after the connection has ended."""
        self.kept: dict[int, bytes] = {}
        """The messages that the client has not acknowledged, by their numbers."""
        self.size = 0
        """The bytes of `kept`."""
        self.last = 0
        """The number of the last message."""
        self.is_told = False
        """Whether the client that attends was told that it is closed."""


class _Attendant:
    """The connection of the client that attends."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.outlet = Outlet(peer)
        self.saves: set[str] = set()
        """Those of which it was told."""


class Relay:
    """Passes messages on. Each connection uses it from its own thread, and none waits for another."""

    def __init__(self, outbox: Outbox, channels: int) -> None:
        """Begin without channels.

        Args:
            outbox: the saves of the node.
            channels: a number below that of the first channel. No channel of an earlier mover of this
                node may have the same number: a late answer would reach another worker.
        """
        self._outbox = outbox
        self._lock = threading.Lock()
        self._attendant: _Attendant | None = None
        self._opened = channels
        self._channels: dict[int, Channel] = {}
        self._closed: dict[int, Channel] = {}
        self._saves: set[str] = set()

    def open(self, worker: Worker) -> Channel:
        """Begin a channel for a worker that has connected."""
        with self._lock:
            self._opened += 1
            channel = self._channels[self._opened] = Channel(self._opened, worker)
            return channel

    def send(self, channel: Channel, body: bytes) -> None:
        """Pass a message on to the client, and keep it.

        Raises:
            ProtocolError: too many messages wait for an acknowledgement.
        """
        with self._lock:
            if len(channel.kept) >= _MOST_KEPT or channel.size + len(body) > _MOST_KEPT_BYTES:
                raise wire.ProtocolError(
                    f"{len(channel.kept)} messages of this worker, of {channel.size} bytes, wait for the client, and "
                    f"the mover keeps {_MOST_KEPT} of {_MOST_KEPT_BYTES} bytes",
                    wire.CHANNEL_SEND,
                )
            channel.last += 1
            channel.kept[channel.last] = body
            channel.size += len(body)
            self._put_sent(channel, channel.last)

    def close(self, channel: Channel) -> None:
        """Tell the client that a worker's connection has ended, after all else of this channel."""
        with self._lock:
            channel.worker = None
            self._closed[channel.number] = channel
            size = sum(each.size for each in self._closed.values())
            while len(self._closed) > _MOST_CLOSED or size > _MOST_CLOSED_BYTES:
                oldest = next(iter(self._closed.values()))
                if oldest.kept:
                    complain(f"the mover forgets {len(oldest.kept)} messages of a worker, which no client has fetched")
                size -= oldest.size
                self._forget(oldest)
            self._put_closed(channel)

    def attend(self, peer: Peer) -> None:
        """Send to this client from now on, beginning with all that is kept. A former one's connection ends.

        For the client that attends already, only look for saves.

        Raises:
            RuntimeError: there is no room for another thread.
        """
        with self._lock:
            former = self._attendant
            if former is None or former.peer is not peer:
                self._attendant = _Attendant(peer)
                if former is not None:
                    former.outlet.end()
                self._report(self._saves)
                for channel in self._channels.values():
                    for number in channel.kept:
                        self._put_sent(channel, number)
                    channel.is_told = False
                    if channel.worker is None:
                        self._put_closed(channel)
        self.look()

    def leave(self, peer: Peer) -> None:
        """Send no more to a client, whose connection has ended."""
        with self._lock:
            if self._attendant is not None and self._attendant.peer is peer:
                self._attendant.outlet.end()
                self._attendant = None

    def deliver(self, number: int, received: int, body: bytes) -> None:
        """Forget the messages of a channel that the client has, and pass a message on to its worker."""
        with self._lock:
            channel = self._channels.get(number)
            if channel is None:
                return
            for each in [each for each in channel.kept if each <= received]:
                channel.size -= len(channel.kept.pop(each))
            worker = channel.worker
            if channel.is_told and received >= channel.last:
                self._forget(channel)
        if worker is not None and body:
            worker.deliver(body)

    def ask(self, number: int, ask: int) -> int:
        """Store an ask for the worker of a channel, and return its step.

        Raises:
            Refused: the worker has gone, or its file of steps is damaged.
        """
        with self._lock:
            channel = self._channels.get(number)
            worker = None if channel is None else channel.worker
        if worker is None:
            raise Refused("missing", f"channel {number} has no worker: it has closed the channel, or has ended")
        return worker.ask(ask)

    def announce(self, save: str) -> None:
        """Tell the client of a save, if it is there."""
        if self._outbox.has(save):
            with self._lock:
                self._report([save])

    def look(self) -> None:
        """Tell the client of the saves in the outbox of which it does not know."""
        found = self._outbox.saves()
        with self._lock:
            self._report(found)

    def settle(self, save: str) -> None:
        """Remove a save.

        Raises:
            Refused: it cannot be removed.
        """
        self._outbox.remove(save)
        self._forget_save(save)

    def _report(self, saves: Iterable[str]) -> None:
        self._saves.update(saves)
        attendant = self._attendant
        if attendant is None:
            return
        for save in sorted(set(saves) - attendant.saves):
            attendant.saves.add(save)
            attendant.outlet.put(partial(self._saved, save))

    def _saved(self, save: str) -> Frame | None:
        frame = self._outbox.frame(save)
        if frame is None and not self._outbox.has(save):
            self._forget_save(save)
        return frame

    def _forget_save(self, save: str) -> None:
        with self._lock:
            self._saves.discard(save)
            if self._attendant is not None:
                self._attendant.saves.discard(save)

    def _put_sent(self, channel: Channel, number: int) -> None:
        if self._attendant is not None:
            self._attendant.outlet.put(partial(self._sent, channel, number))

    def _sent(self, channel: Channel, number: int) -> Frame | None:
        with self._lock:
            body = channel.kept.get(number)
        return None if body is None else ([wire.SENT, channel.number, number], body)

    def _put_closed(self, channel: Channel) -> None:
        if self._attendant is not None:
            self._attendant.outlet.put(partial(self._told, channel, self._attendant))

    def _told(self, channel: Channel, attendant: _Attendant) -> Frame:
        with self._lock:
            channel.is_told = self._attendant is attendant
        return [wire.CLOSED, channel.number], b""

    def _forget(self, channel: Channel) -> None:
        self._channels.pop(channel.number, None)
        self._closed.pop(channel.number, None)
