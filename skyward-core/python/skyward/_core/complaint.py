"""Messages of a worker that belong to no task's answer."""

from __future__ import annotations

import sys

from .conceal import concealed


def complain(text: str) -> None:
    """Write a message to standard error; ignore it if that cannot be written."""
    try:
        sys.stderr.write(f"skyward: {concealed(text)}\n")
    except (OSError, ValueError):
        pass
