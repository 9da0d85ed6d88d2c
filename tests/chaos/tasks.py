"""What the tasks of a chaos round do."""

from __future__ import annotations

import ctypes
import os
import subprocess
import time
from collections.abc import Iterator

import skyward as sky


def ran(call: int, log: str) -> int:
    """Leave a line for this execution; the rank that it runs on."""
    info = sky.instance_info()
    rank = info.global_worker_index
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    os.write(file, f"{call} {rank} {info.generation} {os.getpid()}\n".encode())
    os.close(file)
    return rank


def sleep(call: int, log: str, millis: int) -> tuple[int, int]:
    """Take a while, or no time at all."""
    rank = ran(call, log)
    if millis:
        time.sleep(millis / 1000)
    return call, rank


def hold(call: int, log: str, millis: int, native: bool) -> tuple[int, int]:
    """Run for a while, in Python or in native code that keeps the interpreter's lock."""
    rank = ran(call, log)
    usleep = ctypes.PyDLL(None).usleep
    end = time.monotonic() + millis / 1000
    while (left := end - time.monotonic()) > 0:
        # A signal ends the native call early.
        usleep(int(left * 1e6) + 1 if native else 500)
    return call, rank


def stream(call: int, log: str, count: int, pause: int) -> Iterator[tuple[int, int]]:
    """Give so many items, with so many milliseconds before each."""
    ran(call, log)
    for index in range(count):
        time.sleep(pause / 1000)
        yield call, index


def litter(call: int, log: str) -> tuple[int, int]:
    """Leave processes behind, one of them in a session of its own."""
    rank = ran(call, log)
    for apart in (False, True):
        subprocess.Popen(["sleep", "600"], start_new_session=apart)
    return call, rank


def meet(call: int, log: str) -> tuple[int, int, int]:
    """Add up what all ranks bring."""
    rank = ran(call, log)
    import builtins

    return call, rank, builtins.chaos_world.add_up(call, rank + 1)  # type: ignore[attr-defined]
