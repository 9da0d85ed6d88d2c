"""The folder of a node's artifacts: what in it is no artifact yet, or no more, and how that is removed.

The name of an artifact is its id. Everything else has a hidden name, and any process of the node may
remove it, unless another one holds its lock, which a killed process cannot keep. What may be the only
copy of a payload's file is set apart, by a mark in its name, and never removed.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Final

FOLDER: Final = "artifacts"
"""Its name in the node's folder."""
CONTENT: Final = "content"
"""The name of the file or folder that an artifact keeps, in the artifact's own folder."""
ID_FORM: Final = "32 lower-case hexadecimal digits"
"""What an id has, for messages."""
_ID_LENGTH: Final = 32
_DIGITS: Final = frozenset("0123456789abcdef")
_APART: Final = ".moved"
_OWNER: Final = 0o700
_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_FOLDER: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_NO_LOCKS: Final = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EBADF, errno.EINVAL)
"""Errors of file systems that lock no folders. On these, nothing is found to be abandoned."""


def is_id(text: str) -> bool:
    """Return whether this can be the id of an artifact or of a checkpoint's save."""
    return len(text) == _ID_LENGTH and _DIGITS.issuperset(text)


def hidden(id: str) -> str:
    """Return the name of an artifact that is not complete yet, or that is being removed."""
    return f".{id}"


def apart(id: str) -> str:
    """Return the name of an incomplete artifact whose content may be the only copy of a file."""
    return hidden(id) + _APART


def make_folder(path: str) -> None:
    """Make a folder that only its owner may use, whatever the mask of new files is.

    Raises:
        OSError: it cannot be made, or exists already.
    """
    os.mkdir(path, _OWNER)
    os.chmod(path, _OWNER)


def make_folders(path: str) -> None:
    """Make a folder and those above it, unless they are there; only their owner may use those that are made.

    Raises:
        OSError: one of them cannot be made.
    """
    if not os.path.isdir(path):
        above = os.path.dirname(path)
        if above:
            make_folders(above)
        with suppress(FileExistsError):
            make_folder(path)


def make_locked(path: str) -> int:
    """Make a folder with a hidden name, which no other process removes while the lock is held.

    Returns:
        the descriptor that holds the lock, also if the folder is renamed.

    Raises:
        OSError: it cannot be made.
    """
    while True:
        # Another process may remove the folder until it is locked.
        with suppress(FileNotFoundError):
            make_folder(path)
            lock = os.open(path, _FLAGS)
            try:
                _wait_for(lock)
                if os.path.samestat(os.fstat(lock), os.stat(path)):
                    return lock
            except BaseException:
                os.close(lock)
                raise
            os.close(lock)


def _wait_for(lock: int) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise


def sweep(folder: str) -> dict[str, OSError]:
    """Remove what processes that have ended have left in the folder of artifacts.

    Args:
        folder: the folder; it may be missing.

    Returns:
        the names of those that cannot be removed, and why.
    """
    failed: dict[str, OSError] = {}
    try:
        names = [name for name in os.listdir(folder) if name.startswith(".")]
    except OSError as error:
        _raise_of_handler(error)
        return failed
    for name in names:
        try:
            _remove_abandoned(f"{folder}/{name}")
        except OSError as error:
            _raise_of_handler(error)
            failed[name] = error
    return failed


def _remove_abandoned(path: str) -> None:
    try:
        lock = os.open(path, _FLAGS)
    except OSError as error:
        if error.errno in _NO_FOLDER:
            return
        raise
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # It may have become an artifact before it was locked here.
            is_abandoned = os.path.samestat(os.fstat(lock), os.stat(path))
        except OSError as error:
            _raise_of_handler(error)
            return  # another process uses it, or nothing can be locked
        if is_abandoned:
            remove_incomplete(path)
    finally:
        os.close(lock)


def _raise_of_handler(error: OSError) -> None:
    """Raise an error that has no number: a signal handler of the payload has raised it."""
    if error.errno is None:
        raise error


def remove_incomplete(path: str) -> None:
    """Remove an incomplete artifact, unless its content may be the only copy of a file.

    Raises:
        OSError: a part of it cannot be removed.
    """
    if not (path.endswith(_APART) and os.path.lexists(f"{path}/{CONTENT}")):
        remove(path)


def remove(path: str, on_work: Callable[[], None] = lambda: None) -> None:
    """Remove a folder, however deep it is. What another process removes meanwhile is no error.

    Args:
        path: the folder.
        on_work: called again and again while files are removed.

    Raises:
        OSError: a part of it cannot be removed.
    """
    waiting, emptied = [path], []
    while waiting:
        folder = waiting.pop()
        emptied.append(folder)
        waiting += [f"{folder}/{name}" for name in _remove_files(folder, on_work)]
    for folder in reversed(emptied):
        with suppress(FileNotFoundError):
            os.rmdir(folder)


def remove_any(path: str, on_work: Callable[[], None] = lambda: None) -> None:
    """Remove a folder, a file or a link, but nothing that the link leads to.

    Args:
        path: what is removed.
        on_work: called again and again while files of a folder are removed.

    Raises:
        OSError: a part of it cannot be removed.
    """
    try:
        os.unlink(path)
    except (IsADirectoryError, PermissionError):
        # The second is the error of some systems for folders.
        remove(path, on_work)


def _open(path: str) -> int:
    """Open a folder, also one that a payload has closed to its owner."""
    try:
        return os.open(path, _FLAGS)
    except PermissionError:
        os.chmod(path, _OWNER)
        return os.open(path, _FLAGS)


def _remove_files(path: str, on_work: Callable[[], None]) -> list[str]:
    """Remove all that is in a folder but folders, whose names are returned."""
    folders = []
    try:
        folder = _open(path)
    except FileNotFoundError:
        return []
    try:
        if os.fstat(folder).st_mode & _OWNER != _OWNER:
            os.fchmod(folder, _OWNER)
        with os.scandir(folder) as found:
            entries = list(found)
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            else:
                on_work()
                with suppress(FileNotFoundError):
                    os.unlink(entry.name, dir_fd=folder)
    finally:
        os.close(folder)
    return folders
