"""Descriptors that belong to the worker, at high numbers."""

from __future__ import annotations

import errno
import os
import socket
from typing import Final

NO_ROOM: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""Errors of a process or a system that can open nothing more."""
PAUSE: Final = 0.05
"""The pause after such an error, in seconds."""


def accept(listener: socket.socket) -> socket.socket:
    """Accept a connection on a high descriptor.

    Raises:
        BlockingIOError: no connection waits.
        OSError: with a number in `NO_ROOM`: no descriptor is free; the client has to connect again,
            or is accepted later.
    """
    opened, _ = listener.accept()
    return raise_descriptor(opened)


def raise_descriptor(opened: socket.socket) -> socket.socket:
    """Move a socket to a high descriptor, because payloads may close the low ones."""
    return socket.socket(fileno=move_descriptor(opened.detach()))


def move_descriptor(descriptor: int) -> int:
    """Move a descriptor to a high number; the low one is closed, also if there is no high one."""
    import fcntl

    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, high_descriptor())
    finally:
        os.close(descriptor)


def high_descriptor() -> int:
    """Return the lowest number that the worker uses for its own descriptors."""
    most = os.sysconf("SC_OPEN_MAX")
    return 960 if most < 0 or most >= 1024 else max(most - 32, 3)
