"""Copies of files, which are hashed on the way. They need little memory, and no disk where files can share it."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable
from io import FileIO
from typing import Final

from .._core.reflinks import share

_BUFFER: Final = 256 << 10
"""Larger writes are slower in virtual machines that get memory at its first use."""
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_FLAGS: Final = os.O_NONBLOCK | os.O_NOCTTY
"""Without `O_NONBLOCK`, a named pipe that takes the place of a file would block."""


class Copier:
    """Copies or only hashes the files of one artifact."""

    def __init__(self, what: str, needed: int, folder: str | None, advice: str) -> None:
        """Prepare copies; nothing is copied yet.

        Args:
            what: the name of all files together, for messages.
            needed: the bytes of all files together.
            folder: the folder on whose disk they are copied; None if they are only hashed.
            advice: what to do if the disk has no room.
        """
        self._what = what
        self._needed = needed
        self._folder = folder
        self._advice = advice
        self._has_room = False
        self._buffer = memoryview(bytearray(_BUFFER))

    def file(self, source: str, target: str | None, is_executable: bool = False) -> tuple[int, str]:
        """Copy and hash a file.

        Args:
            source: the file.
            target: the path of the copy; None if the file is only hashed.
            is_executable: whether the owner may execute the copy.

        Returns:
            its size, and its SHA-256 in hexadecimal digits.

        Raises:
            OSError: it cannot be read or written.
            RuntimeError: it has changed meanwhile.
        """
        with _open(source) as file:
            before = os.fstat(file.fileno())
            if not stat.S_ISREG(before.st_mode):
                raise changed(source)
            if target is None:
                size, digest = self._pass(file.readinto)
            else:
                size, digest = self._writing(target, is_executable, lambda copy: self._copy(file, copy))
            if not is_same(before, os.fstat(file.fileno())):
                raise changed(source)
        self._needed -= size
        return size, digest

    def data(self, data: memoryview, target: str | None) -> tuple[int, str]:
        """Write and hash bytes, like a file. Another thread may change them meanwhile."""
        done = 0

        def read(buffer: memoryview) -> int:
            nonlocal done
            count = min(len(buffer), len(data) - done)
            buffer[:count] = data[done : done + count]
            done += count
            return count

        if target is None:
            return self._pass(read)
        return self._writing(target, False, lambda copy: self._write(read, copy))

    def _writing(self, path: str, is_executable: bool, write: Callable[[FileIO], tuple[int, str]]) -> tuple[int, str]:
        try:
            with create(path, is_executable) as copy:
                return write(copy)
        except OSError as error:
            if error.errno in _FULL and error.filename is None:
                raise self._no_room(error.errno) from error
            raise

    def _copy(self, source: FileIO, copy: FileIO) -> tuple[int, str]:
        return self._pass(copy.readinto) if share(source, copy) else self._write(source.readinto, copy)

    def _write(self, read: Callable[[memoryview], int], copy: FileIO) -> tuple[int, str]:
        self._check_room()

        def write(part: memoryview) -> None:
            while part:
                part = part[copy.write(part) :]

        return self._pass(read, write)

    def _pass(
        self, read: Callable[[memoryview], int], write: Callable[[memoryview], None] = lambda part: None
    ) -> tuple[int, str]:
        """Hash and write all that can be read."""
        digest = hashlib.sha256()
        size = 0
        while count := read(self._buffer):
            part = self._buffer[:count]
            digest.update(part)
            write(part)
            size += count
        return size, digest.hexdigest()

    def _check_room(self) -> None:
        """Check, before the first copy that needs the disk, that it has room for all of them."""
        if self._has_room or self._folder is None:
            return
        disk = os.statvfs(self._folder)
        if disk.f_blocks and disk.f_bavail * disk.f_frsize < self._needed:
            raise self._no_room(errno.ENOSPC)
        self._has_room = True

    def _no_room(self, number: int) -> OSError:
        disk = os.statvfs(self._folder or "/")
        free = disk.f_bavail * disk.f_frsize
        text = (
            f"sky.artifact needs {_bytes(self._needed)} for {self._what}, and {_bytes(free)} are free on the disk of "
            f"the node's folder: {self._advice}"
        )
        return OSError(number, text)


def duplicate(source: str, target: str, is_executable: bool, keeper: str) -> None:
    """Copy a file without hashing it.

    Args:
        source: the file.
        target: the path of the copy.
        is_executable: whether the owner may execute the copy.
        keeper: the function that copies, for messages.

    Raises:
        OSError: it cannot be read or written.
        RuntimeError: it has changed meanwhile.
    """
    with _open(source) as file, create(target, is_executable) as copy:
        before = os.fstat(file.fileno())
        if not stat.S_ISREG(before.st_mode):
            raise changed(source, keeper)
        if not share(file, copy):
            buffer = memoryview(bytearray(_BUFFER))
            while count := file.readinto(buffer):
                part = buffer[:count]
                while part:
                    part = part[copy.write(part) :]
        if not is_same(before, os.fstat(file.fileno())):
            raise changed(source, keeper)


def _open(path: str) -> FileIO:
    return FileIO(path, "r", opener=lambda path, flags: os.open(path, flags | _FLAGS))


def create(path: str, is_executable: bool = False) -> FileIO:
    """Create a file that only its owner may use, whatever the mask of new files is.

    Raises:
        OSError: it cannot be created, or exists already.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    file = FileIO(descriptor, "r+")
    os.fchmod(descriptor, mode(is_executable))
    return file


def mode(is_executable: bool) -> int:
    """Return the mode of a file of an artifact; folders can be executed."""
    return 0o700 if is_executable else 0o600


def is_same(before: os.stat_result, after: os.stat_result) -> bool:
    """Return whether a file has not changed between two looks at it."""
    return (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)


def changed(path: str, keeper: str = "sky.artifact") -> RuntimeError:
    """Return the error for a file that has changed while it was copied."""
    return RuntimeError(f"the file {path} changed while {keeper} copied it: close it first, and stop what writes it")


def _bytes(count: int) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} bytes"
