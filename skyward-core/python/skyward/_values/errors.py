"""Values that cannot be sent."""

from __future__ import annotations

from typing import Final

from .advice import type_name

_SHOWN: Final = 8
"""The number of segments of a long path that are shown at its start and at its end."""


class EncodeError(Exception):
    """A value cannot be converted; the error says where it is, what it is, and why."""

    def __init__(self, reason: str, value: object, path: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.value_type = type_name(type(value))
        self._segments = [path] if path else []

    @property
    def path(self) -> str:
        """The path of the value, whose middle is left out if it is long."""
        segments = self._segments[::-1]
        if len(segments) > 2 * _SHOWN:
            segments[_SHOWN:-_SHOWN] = ["…"]
        return "".join(segments)

    def under(self, segment: str) -> EncodeError:
        """Return the same error with the path as seen from the container of the value."""
        self._segments.append(segment)
        return self


class TooLargeError(Exception):
    """A value has more bytes than a frame may have."""
