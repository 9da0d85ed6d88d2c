"""The file of steps of a worker's checkpoints: at which step the worker is, and what the client asks."""

from __future__ import annotations

import os
import stat
import threading
from typing import Final

from .._core import artifacts, checkpoint_folders, wire
from .._core.barrier import barrier
from . import files

_FLAGS: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_LENGTH: Final = 16


class Steps:
    """Two numbers of 8 bytes: the step, which the worker writes, and the ask, which the mover writes.

    The mover reads and writes the file by system calls. A mapping would end the mover if a payload
    cut the file short.
    """

    def __init__(self, home: str, id: str) -> None:
        """Open the file, which the worker has made.

        Args:
            home: the absolute path of the node's folder.
            id: the id of the file.

        Raises:
            ProtocolError: there is no such file.
        """
        if not artifacts.is_id(id):
            raise wire.ProtocolError(
                f"the id of a file of steps has {artifacts.ID_FORM}, unlike {id[:100]!r}", wire.CHANNEL_ATTACH
            )
        self._path = f"{checkpoint_folders.steps(home)}/{id}"
        self._lock = threading.Lock()
        try:
            file = os.open(self._path, _FLAGS)
        except OSError as error:
            raise wire.ProtocolError(f"cannot open {self._path}: {error.strerror}", wire.CHANNEL_ATTACH) from None
        self._file: int | None = file
        about = os.fstat(file)
        if not stat.S_ISREG(about.st_mode) or about.st_size != _LENGTH:
            self.close()
            raise wire.ProtocolError(f"{self._path} is no file of {_LENGTH} bytes", wire.CHANNEL_ATTACH)

    def ask(self, number: int) -> int:
        """Store an ask, and return the worker's step.

        The worker first stores its step and then looks for an ask. The mover first stores the ask
        and then looks for the step. With a barrier on both sides, either the worker sees the ask, or
        the mover sees the step that the worker goes on with. The mover executes it for both.

        Raises:
            Refused: the worker has gone, or something has cut the file short.
        """
        with self._lock, files.named(os.fsencode(self._path)):
            if self._file is None:
                raise files.Refused("missing", "the worker has closed this channel, or has ended")
            # A write to a shorter file would fill the missing part with zeros, as if that was the step.
            found = os.pread(self._file, _LENGTH, 0)
            if len(found) == _LENGTH:
                # A request that was delayed is older than what the worker has answered.
                number = max(number, int.from_bytes(found[8:], "little", signed=True))
                os.pwrite(self._file, number.to_bytes(8, "little", signed=True), 8)
                barrier()
                step = os.pread(self._file, 8, 0)
                if len(step) == 8:
                    return int.from_bytes(step, "little", signed=True)
            raise files.Refused("changed", f"something has cut {self._path} short, which records the worker's step")

    def close(self) -> None:
        """Give the descriptor back, after the worker has gone."""
        with self._lock:
            if self._file is not None:
                os.close(self._file)
                self._file = None
