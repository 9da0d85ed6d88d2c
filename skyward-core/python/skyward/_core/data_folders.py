"""The cache of data sets of a machine, which the movers of its nodes and their workers share.

A data set is the folder `<id>`, with its tree in `files`. Two locks of a data set are files beside all
of them, which are never removed: `fill`, which who brings or repairs it holds alone, and `use`, which
all who read it share, and whose time of modification is that of the last use.
"""

from __future__ import annotations

import fcntl
import os
from typing import Final

FILES: Final = "files"
"""The folder of a data set's tree, in the data set's own folder."""
LOCKS: Final = ".locks"
"""The folder of the locks, beside the data sets."""
_FLAGS: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def fill_lock(cache: str, id: str) -> str:
    """Return the path of the lock of who brings a data set."""
    return f"{cache}/{LOCKS}/{id}.fill"


def use_lock(cache: str, id: str) -> str:
    """Return the path of the lock of those who read a data set."""
    return f"{cache}/{LOCKS}/{id}.use"


def use_lock_of(tree: str) -> str:
    """Return the path of the lock of those who read the data set with this tree."""
    cache, id = os.path.split(os.path.dirname(tree))
    return use_lock(cache, id)


def take(path: str, is_shared: bool, flags: int = os.O_CREAT) -> int | None:
    """Take a lock without waiting.

    Args:
        path: the file that is locked.
        is_shared: whether others may have it at the same time.
        flags: how the file is opened, besides for reading and writing.

    Returns:
        the descriptor that holds the lock; None if another one keeps it from being taken.

    Raises:
        OSError: the file cannot be opened or locked.
    """
    while True:
        descriptor = os.open(path, _FLAGS | flags, 0o600)
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            if is_lock(descriptor, path):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        # Somebody has removed the file: who opens it now would not see this lock.
        os.close(descriptor)


def is_lock(descriptor: int, path: str) -> bool:
    """Return whether a descriptor is of the file that is at this path now.

    Raises:
        OSError: that cannot be found out.
    """
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
