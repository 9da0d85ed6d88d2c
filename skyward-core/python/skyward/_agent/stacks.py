"""The stacks of workers: asked for with a signal, written by the worker into a file, sent when they are whole."""

from __future__ import annotations

import os
import signal
from time import monotonic
from typing import Final

from .process import Worker

QUIET: Final = 0.2
"""Seconds without a further byte after which the stacks are whole: they are written at one go, and have no end mark."""
PATIENCE: Final = 2.0
"""Seconds after which what is there is sent, even if it is nothing."""
MOST: Final = 64 << 10
"""Bytes that are sent; the last ones, because the main thread comes last."""


class _Asked:
    """One request that is not answered yet."""

    def __init__(self, worker: Worker, now: float) -> None:
        self.worker = worker
        self.start = self.size = worker.stacks_size()
        self.grown = now
        self.deadline = now + PATIENCE

    def due(self) -> float:
        """When to look again."""
        return min(self.deadline, self.grown + QUIET)

    def is_whole(self, now: float) -> bool:
        """Whether nothing more is waited for."""
        size = self.worker.stacks_size()
        if size != self.size or size == self.start:
            self.size, self.grown = size, now
        return now >= self.deadline or self.worker.ended is not None or now - self.grown >= QUIET

    def read(self) -> bytes:
        """What was written since the request."""
        length = min(self.size - self.start, MOST)
        if length <= 0:
            return b""
        with open(self.worker.stacks_path, "rb") as file:
            return os.pread(file.fileno(), length, self.size - length)


class Stacks:
    """All requests that are not answered yet."""

    def __init__(self) -> None:
        self._asked: list[_Asked] = []

    def ask(self, worker: Worker) -> None:
        """Have a worker write its stacks."""
        self._asked.append(_Asked(worker, monotonic()))
        worker.signal(signal.SIGUSR1)

    def due(self) -> float | None:
        """When to look again; None while nobody has asked."""
        return min((asked.due() for asked in self._asked), default=None)

    def take(self, now: float) -> list[tuple[Worker, bytes]]:
        """What is ready to be sent."""
        ready = [asked for asked in self._asked if asked.is_whole(now)]
        self._asked = [asked for asked in self._asked if asked not in ready]
        return [(asked.worker, asked.read()) for asked in ready]
