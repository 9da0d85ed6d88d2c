"""The agent's own log."""

from __future__ import annotations

import os


def log(text: str) -> None:
    """Write a line to the agent's own log, which is its standard error."""
    import time

    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    try:
        os.write(2, f"{stamp} {text}\n".encode())
    except OSError:
        pass  # a full disk must not affect the workers
