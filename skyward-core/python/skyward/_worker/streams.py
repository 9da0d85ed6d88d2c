"""The standard streams of a worker: a disk without room costs output, and never a task."""

from __future__ import annotations

import errno
import io
from typing import Any, Final, cast

_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.ESTALE})
"""What the system answers if a file takes no more bytes, for whatever reason."""
_HINT: Final = "free some space on the node, or print less; what was lost is counted in the output, where it is missing"


class Losses:
    """What this process could not write of its output."""

    def __init__(self) -> None:
        self._bytes = 0
        self._told = 0
        self.are_news = False
        """Whether a warning is due: for the first loss, and when the sum has doubled since."""

    def add(self, count: int) -> None:
        """Count lost bytes."""
        self._bytes += count
        self.are_news = self._bytes > 2 * self._told

    def take_warning(self) -> tuple[str, str]:
        """Return a warning and a hint."""
        self._told, self.are_news = self._bytes, False
        return f"output was lost, {self._bytes} bytes so far: the disk of the node has no room for it", _HINT


losses: Final = Losses()


class _Spool(io.FileIO):
    """A file of output. What it does not take is lost; as soon as it takes bytes again, it says how many."""

    _lost = 0

    def write(self, data: Any) -> int:
        """Write, or count as lost."""
        try:
            if self._lost:
                note = f"\nskyward: {self._lost} bytes of output are missing here: the disk had no room for them\n"
                super().write(note.encode())
                self._lost = 0
            return super().write(data)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            count = memoryview(data).nbytes
            self._lost += count
            losses.add(count)
            return count


class _Lasting(io.BufferedWriter):
    """A file that stays open, also when a payload closes it, or drops a stream that it has put above it."""

    def close(self) -> None:
        """Write what is buffered."""
        self.flush()


def stream(descriptor: int, first: Any) -> io.TextIOWrapper:
    """Return a stream for the output in place of Python's own."""
    first.flush()
    file: Any = _Spool(descriptor, "w", closefd=False)
    file.name = first.name
    made: Any = io.TextIOWrapper(_Lasting(file), "utf-8", "backslashreplace", line_buffering=True)
    made.mode = first.mode
    return cast("io.TextIOWrapper", made)
