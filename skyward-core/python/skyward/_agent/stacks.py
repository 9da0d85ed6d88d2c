"""The stacks of workers.

The agent requests them by a signal, the worker writes them to a file, and the agent sends them when
they are complete.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
from time import monotonic
from typing import Final

from .._core.package_names import DIGEST, PREFIX
from . import tree
from .process import Worker

QUIET: Final = 0.2
"""Seconds without new bytes after which stacks count as complete.

They are written in one go, without an end mark.
"""
PATIENCE: Final = 2.0
"""Seconds after which the agent sends what was written so far, even if that is nothing."""
MOST: Final = 64 << 10
"""The most bytes that are sent. The last ones are kept, because the main thread comes last."""
_MOST_READ: Final = 8 * MOST
"""The most bytes that are read; the names of files are shortened before they are sent."""
_OF_PAYLOAD: Final = rf'"[^"\n]*/{PREFIX}{DIGEST}/'.encode()
"""What precedes the user's path in the name of a payload's file.

Compiled where it is used: every agent starts, and few return stacks.
"""


def shown(text: bytes) -> bytes:
    """Return stacks in which the files of payloads have the user's names."""
    return re.sub(_OF_PAYLOAD, b'"', text)


class _Asked:
    """A request that is not answered yet."""

    def __init__(self, worker: Worker, now: float) -> None:
        self.worker = worker
        self.start = self.size = worker.stacks_size()
        self.grown = now
        self.deadline = now + PATIENCE

    def due(self) -> float:
        """Return the time of the next look at the file."""
        return min(self.deadline, self.grown + QUIET)

    def is_whole(self, now: float) -> bool:
        """Return whether the stacks are complete, or nothing more is expected."""
        size = self.worker.stacks_size()
        if size != self.size or size == self.start:
            self.size, self.grown = size, now
        return now >= self.deadline or self.worker.ended is not None or now - self.grown >= QUIET

    def read(self) -> bytes:
        """Return the bytes that were written since the request."""
        length = min(self.size - self.start, _MOST_READ)
        if length <= 0:
            return b""
        with open(self.worker.stacks_path, "rb") as file:
            text = os.pread(file.fileno(), length, self.size - length)
        return shown(text)[-MOST:]


class Stacks:
    """All requests that are not answered yet."""

    def __init__(self) -> None:
        self._asked: list[_Asked] = []

    def ask(self, worker: Worker) -> None:
        """Ask a worker to write its stacks."""
        self._asked.append(_Asked(worker, monotonic()))
        # A payload may have given the signal its default action.
        if not tree.is_ended_by(worker.pid, signal.SIGUSR1):
            worker.signal(signal.SIGUSR1)

    def due(self) -> float | None:
        """Return the time of the next look at the files; None while there is no request."""
        return min((asked.due() for asked in self._asked), default=None)

    def take(self, now: float) -> list[tuple[Worker, bytes]]:
        """Return the answers that are ready, with their workers, and forget their requests."""
        ready = [asked for asked in self._asked if asked.is_whole(now)]
        self._asked = [asked for asked in self._asked if asked not in ready]
        taken = [(asked.worker, asked.read()) for asked in ready]
        waiting = {asked.worker.stacks_path for asked in self._asked}
        for path in {asked.worker.stacks_path for asked in ready} - waiting:
            with contextlib.suppress(OSError):
                os.truncate(path, 0)
        return taken
