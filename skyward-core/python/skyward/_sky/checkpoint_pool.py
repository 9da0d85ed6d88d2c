"""Checkpoints in a pool: saves go to the outbox of the node, from which the client brings them to the storage."""

from __future__ import annotations

import os
from contextlib import suppress
from math import inf
from mmap import mmap
from pathlib import Path
from time import monotonic
from typing import Any, Final

import msgspec

from .._core import artifacts, checkpoint_folders, state
from .checkpoint_place import Place
from .checkpoint_save import Half, write_file
from .checkpoint_values import Checkpoint, CheckpointError, Options, meta_of
from .cluster import InstanceInfo, count_ranks, is_in_broadcast
from .mover_link import Link, Why


class _Message(msgspec.Struct):
    """A message of the client: an answer, a common step, or why no save can be committed any more."""

    n: int | None = None
    """The number of the message that is answered."""
    error: Why | None = None
    step: int | None = None
    """That of the checkpoint, or from which on all ranks save; None if there is none."""
    meta: str | None = None
    path: str | None = None
    target: int | None = None
    """The number of the ask to which the common step belongs."""
    failed: Why | None = None


_decode: Final = msgspec.msgpack.Decoder(_Message).decode
_encode: Final = msgspec.msgpack.Encoder().encode


_blocks: Final[dict[str, tuple[int, int, int]]] = {}
"""The blocks of each name: the two numbers of the try that has begun the last one, and how many it has begun."""


def _number(name: str, first: int, attempt: int) -> int:
    """Return which block of this name a try begins now: all ranks begin the same number of them."""
    known = _blocks.get(name, (0, 0, 0))
    number = known[2] + 1 if known[:2] == (first, attempt) else 1
    _blocks[name] = (first, attempt, number)
    return number


class Pool(Place):
    """The saves of one rank, and what the client says of them."""

    def __init__(self, options: Options, home: str, info: InstanceInfo) -> None:
        """Make nothing yet.

        Args:
            options: those of the block.
            home: the node's folder.
            info: the place of this worker.
        """
        super().__init__()
        self._options = options
        self._info = info
        self._id = os.urandom(16).hex()
        is_gang = is_in_broadcast() and info.joined
        self._rank, self.ranks = (info.rank, count_ranks()) if is_gang else (0, 1)
        first, attempt = state.attempt or (0, 0)
        number = _number(options.name, first, attempt)
        self._try = f"{info.generation}.{first}.{attempt}.{number}" if is_gang else self._id
        self.saves = options.writers == "all" or self._rank == 0
        folder = f"{home}/{checkpoint_folders.FOLDER}"
        self.folder = f"{folder}/{checkpoint_folders.OUTBOX}"
        self._steps_file = f"{folder}/{checkpoint_folders.STEPS}/{self._id}"
        self._link = Link(f"{home}/mover.sock", self._id, self._take, "the checkpoints", CheckpointError)
        self._last = 0
        """The number of the last message."""
        self._asks: list[int] = []
        """Messages that ask for a common step."""
        self._waiting: dict[int, int] = {}
        """The messages that are to be answered, and the step up to which an answer says that saves are committed."""
        self._committed = -1
        self._answers: dict[int, _Message] = {}
        self._failure: Why | None = None

    def open(self, until: float) -> None:
        artifacts.make_folders(self.folder)
        self.steps = self._map()
        options, info = self._options, self._info
        about = {
            **{"name": options.name, "keep": options.keep, "writers": options.writers, "own": options.own},
            **{"try": self._try, "rank": self._rank, "ranks": self.ranks},
            **{"node": info.node, "worker_rank": info.rank, "generation": info.generation},
        }
        # It is sent again over each new connection, also when it is answered: the client must know
        # the block from which it hears.
        answer = self._answer(*self._message("open", **about), until)
        if answer is None:
            raise CheckpointError(
                f"{self._named} were not brought to this node within {options.timeout:g} s: "
                f"{self._others}pass a longer timeout if they are large, and look at the pool's events"
            )
        if answer.step is not None:
            if answer.path is None:
                raise CheckpointError(f"the client names no folder for step {answer.step} of {self._named}")
            self.start = Checkpoint(answer.step, Path(answer.path), meta_of(answer.meta or "{}"))

    def check(self) -> None:
        self._link.pump()
        self._raise_failure()

    def look(self) -> None:
        self._link.look()
        self._raise_failure()

    def ask(self, why: str, step: int) -> None:
        self.is_asking = True
        number, body = self._message("due", why=why, step=step)
        self._asks.append(number)
        self._link.send(number, body, inf)

    def settle(self, until: float) -> None:
        asked = self.steps[1]
        if not self._link.wait_for(lambda: self.handled >= asked or self._failure is not None, until, False):
            raise CheckpointError(
                f"the ranks did not agree on a step for {self._named} within {self._options.timeout:g} s: "
                "each rank must call `due` once per step, and leave the block when it is done; a longer timeout allows "
                "for longer steps"
            )
        self._raise_failure()

    def publish(self, half: Half, step: int, meta: str) -> None:
        half.check()
        record = {
            **{"name": self._options.name, "try": self._try, "step": step, "rank": self._rank, "ranks": self.ranks},
            **{"writers": self._options.writers, "meta": meta},
        }
        half.write(checkpoint_folders.RECORD, _encode(record))
        half.publish(half.id)
        self._link.announce(half.id)

    def wait(self, step: int, until: float) -> bool:
        self._raise_failure()
        number, body = self._message("wait", step=step)
        try:
            return self._answer(number, body, until, step) is not None or self._committed >= step
        finally:
            self._link.unanswered.pop(number, None)

    def close(self, failed: bool) -> None:
        try:
            self._link.close(self._message("close", failed=failed)[1])
        finally:
            with suppress(FileNotFoundError):
                os.unlink(self._steps_file)

    def _map(self) -> memoryview:
        """Make the file with the step of this rank, and map it."""
        artifacts.make_folders(os.path.dirname(self._steps_file))
        # It has all its bytes before it is mapped: on a full disk, a store into a hole ends the process.
        write_file(self._steps_file, (-1).to_bytes(8, "little", signed=True) + bytes(8))
        with open(self._steps_file, "r+b", buffering=0) as file:
            return memoryview(mmap(file.fileno(), 16)).cast("q")

    def _message(self, kind: str, **more: Any) -> tuple[int, bytes]:
        self._last += 1
        return self._last, _encode({"kind": kind, "n": self._last, "open": self._id, **more})

    def _answer(self, number: int, body: bytes, until: float, step: int = -1) -> _Message | None:
        """Send a message and wait for the answer; return None if it does not come until this time."""
        self._waiting[number] = step
        try:
            self._link.send(number, body, until)
            # A signal handler may have waited for a later step meanwhile.
            if not self._link.wait_for(
                lambda: number in self._answers or 0 <= step <= self._committed or self._failure is not None,
                until,
                True,
            ):
                return None
            answer = self._answers.pop(number, None)
        finally:
            self._waiting.pop(number, None)
        if answer is None:
            self._raise_failure()
        elif answer.error is not None:
            raise CheckpointError(answer.error.words)
        return answer

    def _take(self, body: bytes) -> None:
        try:
            message = _decode(body)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise CheckpointError(f"this worker cannot read what the client says of {self._named}: {error}") from None
        if message.failed is not None:
            self._failure = message.failed
        elif message.target is not None:
            if message.target > self.handled:
                self._settle(message.target, message.step)
        elif message.n in self._waiting and message.n is not None:
            self._answers[message.n] = message
            if message.error is None:
                self._committed = max(self._committed, self._waiting[message.n])

    def _settle(self, ask: int, step: int | None) -> None:
        self.handled = ask
        if step is None:
            self.withdrawn = monotonic()
        else:
            self.targets.append(step)
        self.is_asking = False
        asks, self._asks = self._asks, []
        for number in asks:
            self._link.unanswered.pop(number, None)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise CheckpointError(self._failure.words)

    @property
    def _named(self) -> str:
        return f'the checkpoints "{self._options.name}"'

    @property
    def _others(self) -> str:
        return "all ranks must open them; " if self.ranks > 1 else ""
