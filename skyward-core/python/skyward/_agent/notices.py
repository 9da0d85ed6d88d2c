"""What a watch command prints: lines that say when the machine ends. No I/O and no clock."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from .._messages import MOST_SECONDS

KINDS: Final = ("preempted", "expired")
"""Why a machine ends, as far as a command on it may know."""
MOST_BYTES: Final = 4096
"""The longest line; of a longer one the rest is skipped."""
_FIRST: Final = 1.0
_LAST: Final = 60.0
"""Seconds between two starts of a command that ends at once, at first and in the end."""
_LINE: Final = re.compile(r"\s*(\w+)\s+(\d{1,10}(?:\.\d*)?|\.\d+)(?:\s+(.*?))?\s*", re.ASCII | re.DOTALL)


class Notice(NamedTuple):
    """The machine will end."""

    kind: str
    deadline: float
    """When, on the clock that counts the time of this process."""
    words: str

    def head(self, number: int, now: float) -> list[object]:
        """The message with the seconds that are left."""
        return [number, self.kind, max(0.0, self.deadline - now), self.words]


def notice(line: bytes, now: float) -> Notice | None:
    """The notice that a line `KIND SECONDS WORDS` gives; None when it gives none."""
    match = _LINE.fullmatch(line.decode(errors="replace"))
    if match is None or match[1] not in KINDS:
        return None
    seconds = float(match[2])
    if seconds > MOST_SECONDS:
        return None
    # People read the words, in terminals too.
    words = "".join(letter if letter.isprintable() else " " for letter in match[3] or "")
    return Notice(match[1], now + seconds, words)


class Lines:
    """Cuts what arrives into lines; keeps no more than one, of bounded length."""

    def __init__(self) -> None:
        self._line = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that are complete; empty ones are left out."""
        *complete, rest = data.split(b"\n")
        if complete:
            complete[0] = self._line + complete[0]
            self._line = b""
        self._line = (self._line + rest)[:MOST_BYTES]
        return [line[:MOST_BYTES] for line in complete if line.strip()]

    def rest(self) -> list[bytes]:
        """The last line, which nothing ends."""
        line, self._line = self._line, b""
        return [line] if line.strip() else []


class Pauses:
    """How long to wait before a command that has ended is started again."""

    def __init__(self) -> None:
        self._next = _FIRST

    def after(self, ran: float) -> float:
        """Seconds to wait after a start that lasted this long: each time twice as many, unless it lasted a minute."""
        if ran >= _LAST:
            self._next = _FIRST
        pause, self._next = self._next, min(self._next * 2, _LAST)
        return pause
