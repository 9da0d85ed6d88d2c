"""What a worker has written last on standard error, for the error of the task that it ran."""

from __future__ import annotations

import os
from typing import Final

from .process import Worker
from .stacks import shown

MOST: Final = 64 << 10
"""The most bytes that are sent. After a fatal signal, the stacks of many threads are among them."""


def last_words(worker: Worker) -> bytes:
    """Return the end of what the worker's process has written; earlier processes have the same file."""
    try:
        with open(worker.spools[1].path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = min(size - worker.err_start, MOST)
            return shown(os.pread(file.fileno(), length, size - length)) if length > 0 else b""
    except OSError:
        return b""
