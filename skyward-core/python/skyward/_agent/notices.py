"""Parse the notices that a watch command prints when the machine will end. No I/O and no clock."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from .._core.messages import MOST_SECONDS

KINDS: Final = ("preempted", "expired")
"""The reasons that a watch command may give for the end of a machine."""
MOST_BYTES: Final = 4096
"""The longest line, in bytes; the rest of a longer line is skipped."""
_FIRST: Final = 1.0
_LAST: Final = 60.0
"""Seconds between two starts of a command that ends at once: the first pause, and the longest."""
_LINE: Final = r"\s*(\w+)\s+(\d{1,10}(?:\.\d*)?|\.\d+)(?:\s+(.*?))?\s*"
"""Compiled where it is used: few agents watch for notices, and all of them start."""


class Notice(NamedTuple):
    """A notice that the machine will end."""

    kind: str
    deadline: float
    """When the machine ends, in seconds on this process's monotonic clock."""
    words: str

    def head(self, number: int, now: float) -> list[object]:
        """Return the head of the message, with the seconds that are left."""
        return [number, self.kind, max(0.0, self.deadline - now), self.words]


def notice(line: bytes, now: float) -> Notice | None:
    """Parse a line `KIND SECONDS WORDS`; None if the line is not a notice."""
    match = re.fullmatch(_LINE, line.decode(errors="replace"), re.ASCII | re.DOTALL)
    if match is None or match[1] not in KINDS:
        return None
    seconds = float(match[2])
    if seconds > MOST_SECONDS:
        return None
    # People read the words, also in terminals.
    words = "".join(letter if letter.isprintable() else " " for letter in match[3] or "")
    return Notice(match[1], now + seconds, words)


class Lines:
    """Splits arriving data into lines; keeps at most one incomplete line, of bounded length."""

    def __init__(self) -> None:
        self._line = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Add data, and return the lines that are complete; empty lines are left out."""
        *complete, rest = data.split(b"\n")
        if complete:
            complete[0] = self._line + complete[0]
            self._line = b""
        self._line = (self._line + rest)[:MOST_BYTES]
        return [line[:MOST_BYTES] for line in complete if line.strip()]

    def rest(self) -> list[bytes]:
        """Return the last line, if it does not end with a newline."""
        line, self._line = self._line, b""
        return [line] if line.strip() else []


class Pauses:
    """How long to wait before a command that has ended is started again."""

    def __init__(self) -> None:
        self._next = _FIRST

    def after(self, ran: float) -> float:
        """Return the seconds to wait after a run that lasted `ran` seconds.

        The pause doubles each time, and is reset after a run of at least a minute.
        """
        if ran >= _LAST:
            self._next = _FIRST
        pause, self._next = self._next, min(self._next * 2, _LAST)
        return pause
