"""Standard streams that are replaced while code runs."""

from __future__ import annotations

import io
import sys
from contextlib import AbstractContextManager
from types import TracebackType
from typing import IO, Any


class Discard(io.TextIOBase):
    """A text stream that discards what is written while it stands in for another stream.

    Code may keep the stream, as a handler of `logging` does. Afterwards it passes everything on to
    the stream whose place it took.
    """

    def __init__(self) -> None:
        """Create a stream that stands in for no other."""
        self._other: Any = None
        self.is_in_place = False

    def stand_in(self, other: Any) -> None:
        """Take the place of another stream."""
        self._other, self.is_in_place = other, True

    def write(self, text: str) -> int:
        """Discard a text, or pass it on."""
        if self.is_in_place or self._other is None:
            return len(text)
        written: int = self._other.write(text)
        return written

    def flush(self) -> None:
        """Flush the other stream, if texts are passed on."""
        if not self.is_in_place and self._other is not None:
            self._other.flush()

    def writable(self) -> bool:
        """Return True."""
        return True

    @property
    def buffer(self) -> Any:
        """The same for bytes."""
        return _Bytes(self)

    @property
    def encoding(self) -> str:  # type: ignore[override, unused-ignore]
        """The encoding of the other stream."""
        return getattr(self._other, "encoding", None) or "utf-8"

    def fileno(self) -> int:
        """Return the file of the other stream, into which child processes write."""
        return super().fileno() if self._other is None else self._other.fileno()

    def __getattr__(self, name: str) -> Any:
        """Return what only some text streams have, such as `reconfigure`, of the other stream."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._other, name)

    def _passes_to(self) -> Any:
        return None if self.is_in_place else getattr(self._other, "buffer", None)


class _Bytes(io.RawIOBase):
    """The bytes below a stream that discards."""

    def __init__(self, text: Discard) -> None:
        self._text = text

    def write(self, data: Any) -> int:
        other = self._text._passes_to()
        return memoryview(data).nbytes if other is None else other.write(data)

    def flush(self) -> None:
        self._text.flush()

    def writable(self) -> bool:
        return True


class Redirect(AbstractContextManager[None]):
    """Replaces standard output and standard error; can be entered again, also within itself."""

    def __init__(self, out: IO[str] | Discard | None, err: IO[str] | Discard | None) -> None:
        """Store the streams.

        Args:
            out: the stream for standard output; None to leave it alone.
            err: the stream for standard error; None to leave it alone.
        """
        self._streams = {"stdout": out, "stderr": err}
        self._before: list[dict[str, Any]] = []

    def __enter__(self) -> None:
        before = {}
        for name, stream in self._streams.items():
            if stream is not None:
                before[name] = getattr(sys, name)
                if isinstance(stream, Discard) and before[name] is not stream:
                    stream.stand_in(before[name])
                setattr(sys, name, stream)
        self._before.append(before)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for name, stream in self._before.pop().items():
            own = self._streams[name]
            if isinstance(own, Discard):
                own.is_in_place = stream is own
            setattr(sys, name, stream)
