"""What is at a path: a file, a folder or a link, which can be brought to the client, or something else."""

from __future__ import annotations

import stat
from typing import Final

FILE: Final = "file"
FOLDER: Final = "folder"
LINK: Final = "link"

_KINDS: Final = {stat.S_IFREG: FILE, stat.S_IFDIR: FOLDER, stat.S_IFLNK: LINK}
_OTHERS: Final = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def kind(mode: int) -> str | None:
    """Return the kind of what has this mode; None for devices, named pipes and sockets."""
    return _KINDS.get(stat.S_IFMT(mode))


def described(mode: int) -> str:
    """Return what has this mode, for a message."""
    known = kind(mode)
    return f"a {known}" if known else _OTHERS.get(stat.S_IFMT(mode), "of an unknown kind")


def is_executable(mode: int) -> bool:
    """Return whether the owner may execute what has this mode."""
    return bool(mode & stat.S_IXUSR)
