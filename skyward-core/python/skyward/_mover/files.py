"""The files of a node: what is at a path, the content of a file, and the removal of an artifact.

Paths are bytes, because names of files need not be text. A relative path begins at the folder in
which the mover runs, which is that of the agent.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from heapq import heappop, heappush
from io import FileIO
from typing import Final

import msgspec

from .._core import file_kinds
from .messages import Identity

_ARTIFACTS: Final = b"artifacts"
_ID_LENGTH: Final = 32
_DIGITS: Final = frozenset("0123456789abcdef")
_MOST_ENTRIES: Final = 4096
_MOST_BYTES: Final = (1 << 20) - 16
"""The most entries of a list, and their bytes without its head; a single entry may have more."""
_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""Without `O_NONBLOCK`, a named pipe that takes the place of a file would block."""
_MISSING: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_encode: Final = msgspec.msgpack.Encoder().encode

Entry = tuple[bytes, str, int, int, int, bool, bytes]
"""Path, kind, inode, size, time of modification, whether the owner may execute it, target."""


class Refused(Exception):
    """A request fails; the text says on which path, and why."""

    def __init__(self, kind: str, words: str, number: int = 0) -> None:
        super().__init__(words)
        self.kind = kind
        """`missing`, `changed`, `kind` or `io`."""
        self.number = number
        """The number of the system's error; 0 if there was none."""


def locate(artifact: str, path: bytes) -> bytes:
    """Return the path on the node that a message names.

    Args:
        artifact: the id of an artifact, or an empty string.
        path: a path of the node, or of the artifact's folder.

    Raises:
        ValueError: the path is not valid, or leads out of the artifact's folder.
    """
    if b"\0" in path:
        raise ValueError("a path holds a NUL byte")
    if not artifact:
        return path
    if any(part in (b"", b"..") for part in path.split(b"/")):
        raise ValueError(f"the path {_shown(path)!r} is not one below the folder of an artifact")
    return b"/".join((_ARTIFACTS, _valid(artifact), path))


def identity(about: os.stat_result) -> Identity:
    """Return the identity of a file's content."""
    # Some file systems have times beyond 64 bits.
    modified = (about.st_mtime_ns + (1 << 63)) % (1 << 64) - (1 << 63)
    return about.st_ino, about.st_size, modified


def lists(path: bytes) -> Iterator[bytes]:
    """Yield what is at a path and below it, as encoded lists of entries.

    The path itself comes first. What is below it comes in the order of its bytes, so a folder comes
    before what it contains. A link is followed only at the path itself. What is removed meanwhile
    is left out.

    Raises:
        Refused: the path or a folder below it cannot be read, or holds something that is no file,
            folder or link.
    """
    kept: list[msgspec.Raw] = []
    size = 0
    for entry in _entries(path):
        packed = _encode(entry)
        if kept and (len(kept) == _MOST_ENTRIES or size + len(packed) > _MOST_BYTES):
            yield _encode(kept)
            kept, size = [], 0
        kept.append(msgspec.Raw(packed))
        size += len(packed)
    yield _encode(kept)


def _entries(root: bytes) -> Iterator[Entry]:
    with _named(root):
        about = os.stat(root)
        waiting = sorted(os.listdir(root)) if stat.S_ISDIR(about.st_mode) else []
    yield _entry(b"", root, about, b"")
    # A heap: its least path is the next one, because what is below a path is greater than the path.
    while waiting:
        path = heappop(waiting)
        whole = root + b"/" + path
        try:
            with _named(whole):
                about = os.lstat(whole)
                target = os.readlink(whole) if stat.S_ISLNK(about.st_mode) else b""
                names = os.listdir(whole) if stat.S_ISDIR(about.st_mode) else []
        except Refused as refused:
            if refused.kind == "missing":
                continue
            raise
        yield _entry(path, whole, about, target)
        for name in names:
            heappush(waiting, path + b"/" + name)


def _entry(path: bytes, whole: bytes, about: os.stat_result, target: bytes) -> Entry:
    kind = file_kinds.kind(about.st_mode)
    if kind is None:
        raise _of_other_kind(whole, about)
    executable = kind == file_kinds.FILE and file_kinds.is_executable(about.st_mode)
    return path, kind, *identity(about), executable, target


@contextmanager
def opened(path: bytes, expected: Identity | None) -> Iterator[tuple[FileIO, os.stat_result]]:
    """Context manager: open a file.

    Args:
        path: its path; a link is followed.
        expected: the identity that it must have, if any.

    Yields:
        the file, and what the system says about it.

    Raises:
        Refused: it cannot be read, is no file, or has another identity.
    """
    with _named(path):
        # Opening a device may do something to it.
        _check_file(path, os.stat(path))
        descriptor = os.open(path, _FLAGS)
    with open(descriptor, "rb", buffering=0) as file:
        with _named(path):
            about = os.fstat(descriptor)
        _check_file(path, about)
        if expected is not None and expected != identity(about):
            raise Refused("changed", f"{_shown(path)} has changed since it was listed")
        yield file, about


def check_readable(path: bytes, file: FileIO, offset: int) -> None:
    """Read a byte of a file, because an error in the middle of a piece could not be reported.

    Raises:
        Refused: the byte cannot be read.
    """
    with _named(path):
        os.pread(file.fileno(), 1, offset)


def drop(artifact: str) -> None:
    """Remove an artifact, if there is one with this id.

    Raises:
        Refused: it cannot be removed.
        ValueError: this is no id of an artifact.
    """
    import shutil

    name = _valid(artifact)
    folder, aside = _ARTIFACTS + b"/" + name, _ARTIFACTS + b"/." + name
    with _named(folder), suppress(FileNotFoundError):
        # So there is never a part of an artifact.
        os.rename(folder, aside)
    with _named(folder), suppress(FileNotFoundError):
        # Also what an earlier removal has left.
        shutil.rmtree(aside)


def _valid(artifact: str) -> bytes:
    if len(artifact) != _ID_LENGTH or not _DIGITS.issuperset(artifact):
        raise ValueError(f"an artifact's id has {_ID_LENGTH} lower-case hexadecimal digits, unlike {artifact!r}")
    return artifact.encode()


def _check_file(path: bytes, about: os.stat_result) -> None:
    if not stat.S_ISREG(about.st_mode):
        raise _of_other_kind(path, about)


def _of_other_kind(path: bytes, about: os.stat_result) -> Refused:
    return Refused("kind", f"{_shown(path)} is {file_kinds.described(about.st_mode)}")


@contextmanager
def _named(path: bytes) -> Iterator[None]:
    """Context manager: an error of the system is one on this path."""
    try:
        yield
    except OSError as error:
        kind = "missing" if error.errno in _MISSING else "io"
        raise Refused(kind, f"{_shown(path)}: {error.strerror or error}", error.errno or 0) from None


def _shown(path: bytes) -> str:
    return path.decode(errors="replace")
