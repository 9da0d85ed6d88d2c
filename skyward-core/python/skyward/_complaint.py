"""What a worker has to say beside its answers."""

from __future__ import annotations

import sys

from ._conceal import concealed


def complain(text: str) -> None:
    """Write to standard error what is no task's failure; where it cannot be written, it is not."""
    try:
        sys.stderr.write(f"skyward: {concealed(text)}\n")
    except (OSError, ValueError):
        pass
