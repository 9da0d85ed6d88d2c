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
from typing import Final

import msgspec

from .._core import artifacts, file_kinds
from .messages import Identity

_ARTIFACTS: Final = artifacts.FOLDER.encode()
_MOST_ENTRIES: Final = 4096
_MOST_BYTES: Final = (1 << 20) - 16
"""The most entries of a list, and their bytes without its head; a single entry may have more."""
_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""Without `O_NONBLOCK`, a named pipe that takes the place of a file would block."""
_LAST_OFFSET: Final = (1 << 63) - 1
_LONGEST_PATH: Final = 4096
_MISSING: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_encode: Final = msgspec.msgpack.Encoder().encode

Entry = tuple[bytes, str, int, int, int, bool, bytes]
"""Path, kind, inode, size, time of modification, whether the owner may execute it, target."""


class Refused(Exception):
    """A request fails; the text says on which path, and why."""

    def __init__(self, kind: str, words: str, number: int = 0) -> None:
        super().__init__(words)
        self.kind = kind
        """`missing`, `changed`, `kind`, `invalid` or `io`."""
        self.number = number
        """The number of the system's error; 0 if there was none."""


def check_id(what: str, id: str) -> None:
    """Refuse an id of another form than those of artifacts and saves."""
    if not artifacts.is_id(id):
        raise Refused("invalid", f"the id of {what} has {artifacts.ID_FORM}, unlike {id[:100]!r}")


def locate(artifact: str, path: bytes) -> bytes:
    """Return the path on the node that a message names.

    Args:
        artifact: the id of an artifact, or an empty string.
        path: a path of the node, or of the artifact's folder.

    Raises:
        Refused: the path is not valid, or leads out of the artifact's folder.
    """
    if b"\0" in path:
        raise Refused("invalid", f"the path {shown(path)!r} holds a NUL byte")
    if not artifact:
        return path
    if any(part in (b"", b".", b"..") for part in path.split(b"/")):
        raise Refused("invalid", f"the path {shown(path)!r} is not one below the folder of an artifact")
    check_id("an artifact", artifact)
    return b"/".join((_ARTIFACTS, artifact.encode(), path))


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
            folder or link, or a file of the system.
    """
    kept: list[msgspec.Raw] = []
    size = 0
    for entry in entries(path):
        packed = _encode(entry)
        if kept and (len(kept) == _MOST_ENTRIES or size + len(packed) > _MOST_BYTES):
            yield _encode(kept)
            kept, size = [], 0
        kept.append(msgspec.Raw(packed))
        size += len(packed)
    yield _encode(kept)


def entries(root: bytes) -> Iterator[Entry]:
    """Yield what is at a path and below it, as `lists` does, one after another."""
    with named(root):
        about = os.stat(root)
        waiting = sorted(os.listdir(root)) if stat.S_ISDIR(about.st_mode) else []
    yield _entry(b"", root, about, b"")
    # A heap: its least path is the next one, because what is below a path is greater than the path.
    while waiting:
        path = heappop(waiting)
        whole = root + b"/" + path
        try:
            with named(whole):
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
    if kind == file_kinds.FILE and about.st_size == 0 and _is_of_system(whole):
        words = "has no size: it is a file of the system, not of a disk; read it in the payload"
        raise Refused("kind", f"{shown(whole)} {words}")
    executable = kind == file_kinds.FILE and file_kinds.is_executable(about.st_mode)
    return path, kind, *identity(about), executable, target


def _is_of_system(path: bytes) -> bool:
    """Return whether a byte can be read from a file of size 0, such as those of `/proc`."""
    try:
        with opened(path) as descriptor:
            # An empty file of a disk may have got content meanwhile, and then it has a size.
            return bool(os.pread(descriptor, 1, 0)) and os.fstat(descriptor).st_size == 0
    except OSError:
        return False


def read(path: bytes, expected: Identity | None, offset: int, into: memoryview) -> tuple[Identity, int]:
    """Read a piece of a file.

    Args:
        path: its path; a link is followed.
        expected: the identity that it must have, before and after the piece is read, if any.
        offset: where the piece begins.
        into: receives the piece, as far as the file has so much.

    Returns:
        the identity before the piece was read, and how many bytes were read.

    Raises:
        Refused: it cannot be read, is no file, or has another identity.
    """
    with named(path):
        # Opening a device may do something to it.
        _check_file(path, os.stat(path))
        with opened(path) as descriptor:
            about = os.fstat(descriptor)
            _check_file(path, about)
            before = identity(about)
            _check_identity(path, before, expected)
            count = _fill(into, descriptor, offset)
            _check_identity(path, identity(os.fstat(descriptor)), expected)
    return before, count


def _fill(into: memoryview, descriptor: int, offset: int) -> int:
    count = 0
    # The system refuses to read beyond the last offset that it knows.
    into = into[: _LAST_OFFSET - offset]
    while count < len(into):
        got = os.preadv(descriptor, [into[count:]], offset + count)
        if not got:
            break
        count += got
    return count


def drop(artifact: str) -> None:
    """Remove an artifact, if there is one with this id, and what others have left incomplete.

    Raises:
        Refused: it cannot be removed, or this is no id of an artifact.
    """
    check_id("an artifact", artifact)
    hidden = artifacts.hidden(artifact)
    folder = os.fsencode(f"{artifacts.FOLDER}/{artifact}")
    with named(folder), suppress(FileNotFoundError):
        # So there is never a part of an artifact.
        os.rename(folder, os.fsencode(f"{artifacts.FOLDER}/{hidden}"))
    # That includes what an earlier request for this artifact could not remove.
    failed = artifacts.sweep(artifacts.FOLDER).get(hidden)
    if failed is not None:
        raise Refused("io", f"{shown(folder)} cannot be removed: {_words(failed)}", failed.errno or 0)


@contextmanager
def opened(path: bytes) -> Iterator[int]:
    """Context manager: open a file for reading, and yield its descriptor."""
    descriptor = os.open(path, _FLAGS)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _check_identity(path: bytes, found: Identity, expected: Identity | None) -> None:
    if expected is not None and expected != found:
        raise Refused("changed", f"{shown(path)} has changed since it was listed")


def _check_file(path: bytes, about: os.stat_result) -> None:
    if not stat.S_ISREG(about.st_mode):
        raise _of_other_kind(path, about)


def _of_other_kind(path: bytes, about: os.stat_result) -> Refused:
    return Refused("kind", f"{shown(path)} is {file_kinds.described(about.st_mode)}")


@contextmanager
def named(path: bytes) -> Iterator[None]:
    """Context manager: an error of the system is one on this path."""
    try:
        yield
    except OSError as error:
        kind = "missing" if error.errno in _MISSING else "io"
        raise Refused(kind, f"{shown(path)}: {_words(error)}", error.errno or 0) from None


def _words(error: OSError) -> str:
    return error.strerror or str(error)


def shown(path: bytes) -> str:
    """Return a path for a message, which has room for every path that the system accepts."""
    return path[:_LONGEST_PATH].decode(errors="replace")
