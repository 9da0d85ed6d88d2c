"""The outbox: saves of workers that are complete, and wait until the client has settled them.

Payloads can write anything into these folders. A save that is not what the mover expects is removed.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from time import sleep
from typing import Final

from .._core import artifacts, checkpoint_folders, file_kinds, wire
from .._core.complaint import complain
from . import files
from .outlet import Frame

_LONGEST_RECORD: Final = 256 << 10
_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""Without `O_NONBLOCK`, a named pipe in place of a record would block."""
_NOT_THERE: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO)
"""Errors by which a save lacks a part, or has something else in its place."""
_PAUSES: Final = (0.0, 0.1, 1.0)
"""Seconds to wait until a killed process, whose connection has ended, has lost its locks too."""


class Outbox:
    """The folder of saves, in which each has the name of its id."""

    def __init__(self, home: str) -> None:
        """Look at nothing yet.

        Args:
            home: the absolute path of the node's folder.
        """
        self._folder = checkpoint_folders.outbox(home)

    def saves(self) -> list[str]:
        """Return the ids of all saves."""
        try:
            names = os.listdir(self._folder)
        except OSError:
            return []  # no worker has saved anything
        return sorted(filter(artifacts.is_id, names))

    def has(self, save: str) -> bool:
        """Return whether there is a save with this id."""
        return os.path.lexists(f"{self._folder}/{save}")

    def frame(self, save: str) -> Frame | None:
        """Return the message that tells a client of a save; None if it is gone, or was removed as invalid."""
        folder = f"{self._folder}/{save}"
        content = f"{folder}/{checkpoint_folders.CONTENT}"
        try:
            for part in (folder, content):
                if not stat.S_ISDIR(os.lstat(part).st_mode):
                    raise ValueError(f"{part} is no folder")
            record = _record(f"{folder}/{checkpoint_folders.RECORD}")
        except (OSError, ValueError) as error:
            if not self.has(save):
                return None
            if isinstance(error, OSError) and error.errno not in _NOT_THERE:
                complain(f"the checkpoint's save {folder} cannot be read: {error}")
                return None
            complain(f"the checkpoint's save {folder} is not valid, and is removed: {error}")
            with suppress(files.Refused):
                self.remove(save)
            return None
        return [wire.SAVED, save, os.fsencode(content)], record

    def remove(self, save: str) -> None:
        """Remove a save, if it is there.

        Raises:
            Refused: it cannot be removed.
        """
        folder = f"{self._folder}/{save}"
        # So there is never a part of a save.
        hidden = f"{self._folder}/{artifacts.hidden(os.urandom(16).hex())}"
        with files.named(os.fsencode(folder)), suppress(FileNotFoundError, NotADirectoryError):
            os.rename(folder, hidden)
            artifacts.remove_any(hidden)

    def sweep(self) -> None:
        """Remove what processes that have ended have left incomplete."""
        for pause in _PAUSES:
            sleep(pause)
            failed = artifacts.sweep(self._folder)
            if not self._has_incomplete():
                break
        for name, error in failed.items():
            complain(f"the incomplete save {self._folder}/{name} cannot be removed: {error}")

    def _has_incomplete(self) -> bool:
        try:
            return any(name.startswith(".") for name in os.listdir(self._folder))
        except OSError:
            return False


def _record(path: str) -> bytes:
    descriptor = os.open(path, _FLAGS)
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise ValueError(f"{path} is {file_kinds.described(about.st_mode)}")
        if about.st_size > _LONGEST_RECORD:
            raise ValueError(f"{path} has {about.st_size} bytes, and a record has at most {_LONGEST_RECORD}")
        return os.read(descriptor, _LONGEST_RECORD)
    finally:
        os.close(descriptor)
