"""A mover in this process, with a client that attends and workers that have checkpoints, for tests."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import msgspec

from skyward import mover as program
from skyward._core import artifacts, checkpoint_folders, wire

from .client import Frames
from .mover import Failure, MoverClient

UNASKED = (wire.SENT, wire.CLOSED, wire.SAVED)


class Attendant(MoverClient):
    """A client that attends. What comes without a request is kept apart."""

    def __init__(self, peer: str | socket.socket, attends: bool = True) -> None:
        super().__init__(peer)
        self.untold: list[tuple[list[Any], bytes]] = []
        if attends:
            assert self.attend() == [wire.DONE]

    def attend(self) -> list[Any]:
        return self.ask(wire.ATTEND)[0]

    def receive(self) -> tuple[list[Any], bytes]:
        while True:
            head, body = super().receive()
            if head[0] not in UNASKED:
                return head, body
            self.untold.append((head, body))

    def told(self) -> tuple[list[Any], bytes]:
        """Return the next message that comes without a request."""
        return self.untold.pop(0) if self.untold else super().receive()

    def told_all(self) -> list[tuple[list[Any], bytes]]:
        """Return all that has come without a request before the answer to one that is sent now.

        What was put into the connection's queue before is not certain to have come.
        """
        self.deliver(1 << 40)
        told, self.untold = self.untold, []
        return told

    def sent(self) -> tuple[int, int, bytes]:
        """Return channel, number and body of the next message, which a worker has sent."""
        head, body = self.told()
        assert head[0] == wire.SENT, head
        return head[1], head[2], body

    def deliver(self, channel: int, received: int = 0, body: bytes = b"") -> None:
        assert self.ask(wire.DELIVER, channel, received, body=body) == ([wire.DONE], b"")

    def settle(self, save: str) -> None:
        assert self.ask(wire.SETTLE, save) == ([wire.DONE], b"")

    def step(self, channel: int, ask: int) -> int:
        """Return the answer to an ask."""
        head, _ = self.ask(wire.ASK, channel, ask)
        assert head[0] == wire.STEP, head
        step: int = head[1]
        return step

    def restore(self, commit: str, entries: list[Any] | bytes) -> tuple[bytes, bool]:
        """Return the path of the folder, and whether it is complete."""
        body = entries if isinstance(entries, bytes) else msgspec.msgpack.encode(entries)
        head, _ = self.ask(wire.RESTORE, commit, body=body)
        assert head[0] == wire.RESTORED, head
        return head[1], head[2]

    def restore_failure(self, commit: str, entries: list[Any] | bytes) -> Failure:
        body = entries if isinstance(entries, bytes) else msgspec.msgpack.encode(entries)
        return self.failure(wire.RESTORE, commit, body=body)

    def write(self, commit: str, path: bytes, offset: int, piece: bytes) -> None:
        assert self.ask(wire.MOVER_WRITE, commit, path, offset, body=piece) == ([wire.DONE], b"")

    def complete(self, commit: str) -> bytes:
        """Return the path of the folder."""
        head, _ = self.ask(wire.COMPLETE, commit)
        assert (head[0], head[2]) == (wire.RESTORED, True), head
        path: bytes = head[1]
        return path


class Writer(Frames):
    """A worker that has checkpoints."""

    def __init__(self, peer: str | socket.socket, steps: str, version: int = wire.PROTOCOL) -> None:
        super().__init__(peer)
        self.send([wire.CHANNEL_ATTACH, version, steps])

    def hello(self) -> list[Any]:
        return self.expect(wire.CHANNEL_HELLO)[0]

    def say(self, body: bytes) -> None:
        self.send([wire.CHANNEL_SEND], body)

    def heard(self) -> bytes:
        """Return the next message of the client."""
        return self.expect(wire.CHANNEL_DELIVER)[1]

    def error(self) -> str:
        """Return why the mover ends the connection."""
        head, _ = self.receive()
        assert head[0] == wire.ERROR, head
        assert self.at_end()
        words: str = head[2]
        return words


class Here:
    """A mover in this process."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.folder = home / checkpoint_folders.FOLDER
        self.outbox = self.folder / checkpoint_folders.OUTBOX
        listener: Any = None
        self.program = program.Mover(listener, "pool", str(home))

    def connect(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        self.program.accept(theirs)
        return ours

    def client(self, attends: bool = True) -> Attendant:
        return Attendant(self.connect(), attends)

    def worker(self) -> Writer:
        """Connect a worker, and wait until its channel is open."""
        worker = Writer(self.connect(), make_steps(self.home))
        assert worker.hello()[1:] == [wire.PROTOCOL, os.getpid()]
        return worker


def make_steps(home: Path, step: int = -1, ask: int = 0) -> str:
    """Make a file of steps, and return its id."""
    id = os.urandom(16).hex()
    folder = Path(checkpoint_folders.steps(str(home)))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / id).write_bytes(b"".join(number.to_bytes(8, "little", signed=True) for number in (step, ask)))
    return id


def make_save(home: Path, record: bytes = b"record", id: str = "") -> str:
    """Make a save in the outbox, and return its id."""
    id = id or os.urandom(16).hex()
    outbox = checkpoint_folders.outbox(str(home))
    os.makedirs(outbox, exist_ok=True)
    hidden = f"{outbox}/{artifacts.hidden(id)}"
    lock = artifacts.make_locked(hidden)
    os.mkdir(f"{hidden}/{checkpoint_folders.CONTENT}")
    Path(hidden, checkpoint_folders.CONTENT, "rank0.pt").write_bytes(b"weights")
    Path(hidden, checkpoint_folders.RECORD).write_bytes(record)
    os.rename(hidden, f"{outbox}/{id}")
    os.close(lock)
    return id
