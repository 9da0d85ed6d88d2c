"""A mover for tests of a worker's checkpoints: it answers for the client, and keeps what it is sent."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

import skyward as sky
from skyward._core import wire
from skyward._core.barrier import barrier

from .client import DEADLINE

Message = dict[str, Any]


class Channel:
    """A connection of a worker."""

    def __init__(self, opened: socket.socket) -> None:
        self.socket = opened
        self.steps = ""
        self.lock = threading.Lock()

    def send(self, head: list[Any], body: bytes = b"") -> None:
        with self.lock, suppress(OSError):
            self.socket.sendall(wire.frame(head, body))

    def deliver(self, message: Message) -> None:
        self.send([wire.CHANNEL_DELIVER], msgspec.msgpack.encode(message))


class FakeMover:
    """Listens at the place of the mover's socket. What it answers can be replaced."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.path = home / "mover.sock"
        self.start: Message = {"step": None, "meta": None, "path": None}
        """The answer to `open`."""
        self.answer: Callable[[Message], Message | None] = self._answer
        self.got: list[Message] = []
        """The messages of workers, of all channels."""
        self.saved: list[str] = []
        self.hellos: list[list[Any]] = []
        self.channels: list[Channel] = []
        self.ended = 0
        """How many channels have ended."""
        self.refusal: str | None = None
        self._changed = threading.Condition()
        self._listener: socket.socket | None = None
        self.listen()

    def listen(self) -> None:
        """Begin to accept, also after `die`."""
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen(64)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def die(self) -> None:
        """End all connections and accept no more."""
        assert self._listener is not None
        self.path.unlink()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for channel in self.channels:
            self.cut(channel)

    def cut(self, channel: Channel) -> None:
        with suppress(OSError):
            channel.socket.shutdown(socket.SHUT_RDWR)

    def messages(self, kind: str, most: int | None = None) -> list[Message]:
        """Return the messages of a kind; wait until there are this many."""
        if most is not None:
            self.wait(lambda: len([each for each in self.got if each["kind"] == kind]) >= most)
        return [each for each in self.got if each["kind"] == kind]

    def wait(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so that changes by what workers send."""
        with self._changed:
            assert self._changed.wait_for(condition, DEADLINE), (self.got, self.saved)

    def deliver(self, message: Message) -> None:
        """Send a message of the client to all workers."""
        for channel in self.channels:
            channel.deliver(message)

    def ask(self, steps: str, number: int) -> int:
        """Write an ask, and return the step that the worker has noted."""
        file = os.open(self.home / "checkpoints" / "steps" / steps, os.O_RDWR)
        try:
            os.pwrite(file, number.to_bytes(8, "little"), 8)
            barrier()
            return int.from_bytes(os.pread(file, 8, 0), "little", signed=True)
        finally:
            os.close(file)

    def record(self, save: str) -> Message:
        record: Message = msgspec.msgpack.decode((self.outbox / save / "record").read_bytes())
        return record

    @property
    def outbox(self) -> Path:
        return self.home / "checkpoints" / "outbox"

    def _answer(self, message: Message) -> Message | None:
        if message["kind"] == "open":
            return {"n": message["n"], **self.start}
        return {"n": message["n"]} if message["kind"] == "wait" else None

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                opened, _ = listener.accept()
            except OSError:
                return
            channel = Channel(opened)
            threading.Thread(target=self._serve, args=(channel,), daemon=True).start()

    def _serve(self, channel: Channel) -> None:
        reader = wire.FrameReader()
        with suppress(OSError):
            while reader.fill(channel.socket):
                for head, body, _ in reader.frames():
                    self._take(channel, head, bytes(body))
        channel.socket.close()
        with self._changed:
            self.ended += 1
            self.channels = [each for each in self.channels if each is not channel]
            self._changed.notify_all()

    def _take(self, channel: Channel, head: list[Any], body: bytes) -> None:
        answer: Message | None = None
        with self._changed:
            if head[0] == wire.CHANNEL_ATTACH:
                if self.refusal is not None:
                    channel.send([wire.ERROR, head[0], self.refusal, 0])
                    return
                self.hellos.append(head)
                channel.steps = head[2]
                channel.send([wire.CHANNEL_HELLO, wire.PROTOCOL, os.getpid()])
                self.channels.append(channel)
            elif head[0] == wire.CHANNEL_SAVED:
                self.saved.append(head[1])
            else:
                assert head == [wire.CHANNEL_SEND]
                message = msgspec.msgpack.decode(body)
                self.got.append(message)
                answer = self.answer(message)
            self._changed.notify_all()
        if answer is not None:
            channel.deliver(answer)


def eventually(condition: Callable[[], object]) -> None:
    """Wait until something is so that no message tells."""
    until = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.002)


def only(*kinds: str) -> Callable[[Message], Message | None]:
    """Return an answer to these kinds of messages."""
    return lambda message: {"n": message["n"]} if message["kind"] in kinds else None


def save(ckpt: sky.Checkpoints, step: int) -> None:
    """Save a step, in one file."""
    with ckpt.save(step) as folder:
        (folder / "model").write_bytes(b"%d" % step)


def later(act: Callable[[], object], condition: Callable[[], object]) -> threading.Thread:
    """Act on a thread of its own as soon as a condition holds."""

    def run() -> None:
        eventually(condition)
        act()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread
