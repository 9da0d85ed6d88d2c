"""Files that share their content on the disk until one of them is changed (Btrfs, XFS)."""

from __future__ import annotations

import fcntl
from typing import Final, Protocol

_SHARE: Final = 0x40049409  # FICLONE


class Opened(Protocol):
    """A file that is open."""

    def fileno(self) -> int:
        """Return its descriptor."""


def share(source: Opened, copy: Opened) -> bool:
    """Let a file share the content of another one; return False if the file system cannot do that.

    Args:
        source: the file that has the content.
        copy: the file that gets it, open for writing.
    """
    try:
        fcntl.ioctl(copy.fileno(), _SHARE, source.fileno())
    except OSError as error:
        if error.errno is None:
            raise  # a signal handler of the payload has raised
        return False
    return True
