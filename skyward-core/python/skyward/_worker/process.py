"""The process of a worker: what it gets at its start, its files, and its end."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, cast

import msgspec

from .._core import wire
from .._core.descriptors import high_descriptor
from .._tasks.runner import flush
from .streams import stream

_stacks: int | None = None
"""The file to which stacks are written."""


def read_spec() -> dict[str, Any]:
    with open(0, "rb", closefd=False) as source:
        data = source.read()
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    head_length, body_length = wire.HEADER.unpack_from(data)
    return cast("dict[str, Any]", msgspec.msgpack.decode(data[8 + head_length : 8 + head_length + body_length]))


def set_up_output(stacks: str | None) -> None:
    """Write the payload's output line by line, and never fail because of what it prints.

    Args:
        stacks: the file to which the stacks of all threads are written on SIGUSR1.
    """
    out, err = stream(1, sys.stdout), stream(2, sys.stderr)
    vars(sys).update(stdout=out, __stdout__=out, stderr=err, __stderr__=err)
    import faulthandler

    descriptor = keep(2)
    faulthandler.enable(descriptor)
    global _stacks
    _stacks = descriptor if stacks is None else open_file(stacks, os.O_CREAT | os.O_APPEND)
    take_stacks_signal()


def take_stacks_signal() -> None:
    """Write the stacks of all threads on SIGUSR1, whatever a payload has made of this signal."""
    import faulthandler

    if _stacks is not None:
        # `faulthandler` registers a signal once, and does not notice that its handler was replaced.
        faulthandler.unregister(signal.SIGUSR1)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        faulthandler.register(signal.SIGUSR1, _stacks, all_threads=True, chain=False)


def account(path: str | None) -> memoryview:
    """Map the account file that the agent created; without an agent, return a private pair."""
    import mmap

    if path is None:
        return memoryview(bytearray(16)).cast("Q")
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        return memoryview(mmap.mmap(descriptor, 16)).cast("Q")
    finally:
        os.close(descriptor)


def open_file(path: str, flags: int) -> int:
    """Open a file of the worker's own, at a high descriptor."""
    low = os.open(path, os.O_WRONLY | os.O_CLOEXEC | flags, 0o600)
    high = keep(low)
    os.close(low)
    return high


def keep(descriptor: int) -> int:
    """Duplicate a descriptor to a high number: a payload may close or redirect the original."""
    import fcntl

    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, high_descriptor())


def end(code: int) -> None:
    """End without waiting for threads that the payload left behind."""
    import atexit

    from .buffered import write_out

    atexit._run_exitfuncs()
    flush()
    write_out()
    os._exit(code)
