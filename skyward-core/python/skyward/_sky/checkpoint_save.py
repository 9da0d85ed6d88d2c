"""Saves: folders that appear under their names when they are complete, or not at all.

A save is made under a hidden name, and renamed at its end. Its process holds a lock meanwhile. What a
killed process has left is removed by the next save, or by the mover.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from .._core import artifacts, checkpoint_folders, file_kinds
from .._core.inherited import Descriptor, close_in_children
from .checkpoint_values import CheckpointError
from .copying import create, duplicate
from .listing import find

KEEPER: Final = "sky.checkpoints"
"""Who keeps the files of a save, for messages."""


class Half:
    """A folder of this process with a hidden name, which may become a save."""

    def __init__(self, folder: str) -> None:
        """Make nothing yet.

        Args:
            folder: the folder of all saves.
        """
        self.id = os.urandom(16).hex()
        self._all = folder
        self.path = f"{folder}/{artifacts.hidden(self.id)}"
        self.content = f"{self.path}/{checkpoint_folders.CONTENT}"
        """The folder into which the payload writes."""

    def check(self) -> None:
        """Check that all that was written can be kept.

        Raises:
            OSError: something cannot be read, or the folder is gone.
            ValueError: something cannot be kept.
        """
        if not stat.S_ISDIR(os.lstat(self.content).st_mode):
            raise ValueError(f"{KEEPER} cannot keep {self.content}: something else has taken the place of the folder")
        find(self.content, KEEPER)

    def write(self, name: str, data: bytes) -> None:
        """Write a file beside the content.

        Raises:
            OSError: it cannot be written.
        """
        write_file(f"{self.path}/{name}", data)

    def publish(self, name: str) -> None:
        """Give it its name, under which it is complete.

        Raises:
            OSError: that is not possible.
        """
        os.rename(self.path, f"{self._all}/{name}")


@contextmanager
def half(folder: str) -> Iterator[Half]:
    """Context manager: make a folder, which is removed at the end unless it has become a save.

    Raises:
        CheckpointError: the block ends in a process that was forked in it.
        OSError: the folder cannot be made.
    """
    made, process = Half(folder), os.getpid()
    lock: Descriptor | None = None
    try:
        artifacts.make_folders(folder)
        artifacts.sweep(folder)
        lock = Descriptor(artifacts.make_locked(made.path))
        close_in_children(lock)
        artifacts.make_folder(made.content)
        yield made
    finally:
        if os.getpid() == process:
            with suppress(OSError):
                artifacts.remove(made.path)
        if lock is not None:
            lock.close()


def write_file(path: str, data: bytes) -> None:
    """Create a file.

    Raises:
        OSError: it cannot be created or written.
    """
    try:
        with create(path) as file:
            part = memoryview(data)
            while part:
                part = part[file.write(part) :]
    except OSError as error:
        raise _located(error, path) from None


def fill(target: str, source: str) -> None:
    """Copy all that is in one folder into another one, which is empty.

    Where the file system can do that, the copies share the content of the files.

    Raises:
        OSError: something cannot be read or written.
        RuntimeError: a file has changed meanwhile.
        ValueError: something cannot be kept.
    """
    for each in find(source, KEEPER)[1:]:
        copy = each.below(target)
        try:
            if each.kind == file_kinds.FOLDER:
                artifacts.make_folder(copy)
            elif each.kind == file_kinds.LINK:
                os.symlink(os.fsdecode(each.target), copy)
            else:
                duplicate(each.below(source), copy, each.is_executable, KEEPER)
        except OSError as error:
            raise _located(error, copy) from None


def _located(error: OSError, path: str) -> OSError:
    """Return an error of a write with the path, which the system leaves out."""
    if error.errno is None or error.filename is not None:
        return error
    return OSError(error.errno, f"{error.strerror}: {KEEPER} cannot write this file", path)


def of_another_process() -> CheckpointError:
    """Return the error for a process that has not opened the checkpoints."""
    return CheckpointError(
        f"process {os.getpid()} cannot use these checkpoints: it was forked or started by the process of the task. "
        "Use sky.checkpoints on the process that runs the payload, and save there"
    )
