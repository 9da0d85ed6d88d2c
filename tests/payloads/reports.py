"""Payloads that report to their caller while they run."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import skyward as sky


def epochs(count: int) -> int:
    """Report each epoch."""
    for epoch in range(count):
        sky.report({"rank": sky.instance_info().global_worker_index, "epoch": epoch})
    return count


def leaf(number: int) -> int:
    """A call within a call."""
    sky.report({"rank": -1, "epoch": number})
    return number


def nested(count: int) -> int:
    """Report from calls, which run here and elsewhere."""
    return sum(sky.map(leaf, range(count), chunksize=1))


def dies_once(marker: str) -> str:
    """Report, and end the worker in the first try."""
    sky.report("began")
    path = Path(marker)
    if not path.exists():
        path.touch()
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGKILL)
    sky.report("went on")
    return "end"


def flood(count: int, size: int) -> float:
    """Report much; the seconds that took."""
    began = time.monotonic()
    for _ in range(count):
        sky.report(bytes(size))
    return time.monotonic() - began
