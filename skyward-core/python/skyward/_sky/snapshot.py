"""Snapshots: the folder of an artifact, with its content and its manifest.

A snapshot is made under a hidden name, and renamed when it is complete. Its process holds a lock
meanwhile. If it is killed, the next snapshot of the node or the mover removes what it has left, but
not a source that it has moved already: nothing is lost, though the pool's end removes that as well.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import sha256
from typing import Final, NamedTuple

import msgspec

from .._core import artifacts, file_kinds
from .._core.complaint import complain
from . import copying
from .copying import Copier
from .listing import Found, find, paths, too_many

_OTHER_DISK: Final = (errno.EXDEV, errno.EBUSY)
"""Errors of a rename that would lead to another disk, or away from a mount point."""
_LONGEST_MANIFEST: Final = 64 << 20
"""The most bytes of a manifest. The client refuses longer ones."""
_LIST_HEAD: Final = 5
"""The most bytes before the entries of a manifest."""
_UNKNOWN: Final = "0" * 64
"""In place of a SHA-256."""
_ADVICE: Final = "pass a smaller folder, or discard earlier artifacts from Rust"

Listed = tuple[bytes, str, int, str, bool, bytes]
"""An entry of a manifest: path, kind, size, SHA-256, whether the owner may execute it, target."""


class Kept(NamedTuple):
    """What a snapshot has."""

    size: int
    sha256: str
    files: int | None
    """How many files a folder has; None for a file."""


class _Half:
    """A snapshot that is not complete yet."""

    def __init__(self, home: str, id: str) -> None:
        self.all = f"{home}/{artifacts.FOLDER}"
        """The folder of all artifacts."""
        self.whole = f"{self.all}/{id}"
        self._plain = self.folder = f"{self.all}/{artifacts.hidden(id)}"
        self._apart = f"{self.all}/{artifacts.apart(id)}"

    @property
    def content(self) -> str:
        """The path of the file or folder."""
        return f"{self.folder}/{artifacts.CONTENT}"

    @property
    def manifest(self) -> str:
        """The path of the manifest."""
        return f"{self.folder}/manifest"

    def set_apart(self) -> None:
        """Mark that its content may soon be the only copy of the source."""
        os.rename(self.folder, self._apart)
        self.folder = self._apart

    def put_back(self) -> None:
        """Take the mark away."""
        os.rename(self.folder, self._plain)
        self.folder = self._plain

    def publish(self) -> None:
        """Make it an artifact."""
        os.rename(self.folder, self.whole)


@contextmanager
def _half(home: str, id: str) -> Iterator[_Half]:
    """Context manager: begin a snapshot, which is removed if it does not become an artifact."""
    half = _Half(home, id)
    lock: int | None = None
    try:
        with suppress(FileExistsError):
            artifacts.make_folder(half.all)
        artifacts.sweep(half.all)
        lock = artifacts.make_locked(half.folder)
        yield half
    except BaseException:
        with suppress(OSError):
            artifacts.remove_incomplete(half.folder)
        raise
    finally:
        if lock is not None:
            os.close(lock)


def of_bytes(data: memoryview, home: str | None, id: str) -> Kept:
    """Keep bytes as a file.

    Args:
        data: the bytes.
        home: the node's folder; None to keep nothing, and only hash.
        id: the id of the artifact.

    Raises:
        OSError: the file cannot be written.
    """
    copier = Copier("these bytes", len(data), home, _ADVICE)
    if home is None:
        return _kept([_of_bytes(*copier.data(data, None))])
    with _half(home, id) as half:
        listed = [_of_bytes(*copier.data(data, half.content))]
        _write_manifest(half, listed)
        half.publish()
    return _kept(listed)


def of_path(source: str, home: str | None, id: str, is_moved: bool) -> Kept:
    """Keep a file or folder.

    Args:
        source: its path.
        home: the node's folder; None to keep nothing, and only check and hash.
        id: the id of the artifact.
        is_moved: whether the source is not needed any more.

    Raises:
        OSError: something cannot be read or written, or the disk has no room.
        RuntimeError: a file has changed meanwhile.
        ValueError: something cannot be kept.
    """
    found = find(source)
    _check_manifest(source, found)
    needed = sum(each.about.st_size for each in found if each.kind == file_kinds.FILE)
    advice = _ADVICE if is_moved else f"pass move=True if {source} is not needed any more, {_ADVICE}"
    copier = Copier(source, needed, home, advice)
    if home is None:
        return _kept(_hashed(source, found, copier))
    with _half(home, id) as half:
        if is_moved and _may_rename(source, found, half.folder):
            listed = _hashed(source, found, copier)
            _write_manifest(half, listed)
            if _move(source, found, half):
                return _kept(listed)
            os.unlink(half.manifest)
        listed = [_copied(source, each, half.content, copier) for each in found]
        _write_manifest(half, listed)
        half.publish()
    if is_moved:
        _remove(source, found)
    return _kept(listed)


def _of_bytes(size: int, digest: str) -> Listed:
    return b"", file_kinds.FILE, size, digest, False, b""


def _hashed(source: str, found: list[Found], copier: Copier) -> list[Listed]:
    return [_listed(each, partial(copier.file, each.below(source), None)) for each in found]


def _copied(source: str, each: Found, content: str, copier: Copier) -> Listed:
    target = each.below(content)
    if each.kind == file_kinds.FOLDER:
        artifacts.make_folder(target)
    elif each.kind == file_kinds.LINK:
        os.symlink(os.fsdecode(each.target), target)
    return _listed(each, partial(copier.file, each.below(source), target, each.is_executable))


def _listed(each: Found, read: Callable[[], tuple[int, str]]) -> Listed:
    size, digest = read() if each.kind == file_kinds.FILE else (0, "")
    return each.path, each.kind, size, digest, each.is_executable, each.target


def _may_rename(source: str, found: list[Found], folder: str) -> bool:
    """Return whether the source itself can become the content: it is on the same disk, and nothing else.

    What a link leads to may have other users, and so has a file with another name. The modes of what
    another user owns cannot be changed.
    """
    return (
        not os.path.islink(source)
        and {each.about.st_dev for each in found} == {os.stat(folder).st_dev}
        and {each.about.st_uid for each in found} == {os.geteuid()}
        and all(each.about.st_nlink == 1 for each in found if each.kind == file_kinds.FILE)
    )


def _move(source: str, found: list[Found], half: _Half) -> bool:
    """Rename the source to the content, and publish it; return False if it has to be copied.

    If that fails in the middle, the source is where it was.
    """
    try:
        half.set_apart()
        os.rename(source, half.content)
        if found[0].kind == file_kinds.FOLDER:
            _check_paths(source, found, paths(half.content))
        for each in found:
            path = each.below(half.content)
            if each.kind == file_kinds.FILE and not copying.is_same(each.about, os.lstat(path)):
                raise copying.changed(each.below(source))
            if each.kind != file_kinds.LINK:
                os.chmod(path, copying.mode(each.is_executable or each.kind == file_kinds.FOLDER))
        half.publish()
    except BaseException as error:
        with suppress(OSError):
            os.rename(half.whole, half.folder)
        if not os.path.lexists(half.content):
            if isinstance(error, OSError) and error.errno in _OTHER_DISK:
                half.put_back()
                return False
            raise
        # If this fails, the content stays, because it is set apart.
        os.rename(half.content, source)
        raise
    return True


def _check_paths(source: str, found: list[Found], now: list[bytes]) -> None:
    """Check that nothing was added to a folder or removed from it since it was listed."""
    before = [each.path for each in found[1:]]
    if before != now:
        first = min(set(before) ^ set(now))
        raise copying.changed(f"{source}/{os.fsdecode(first)}")


def _remove(source: str, found: list[Found]) -> None:
    """Remove a source that was copied, but nothing that was added to it meanwhile.

    The artifact is complete, also if this fails.
    """
    try:
        if os.path.islink(source):
            os.unlink(source)
            return
        for each in reversed(found):
            path = each.below(source)
            if each.kind == file_kinds.FOLDER:
                os.rmdir(path)
            else:
                os.unlink(path)
    except OSError as error:
        if error.errno is None:
            raise  # a signal handler of the payload has raised
        complain(f"sky.artifact has copied {source}, and cannot remove it: {error.strerror}")


def _unread(each: Found) -> tuple[int, str]:
    return each.about.st_size, _UNKNOWN


def _check_manifest(source: str, found: list[Found]) -> None:
    """Check that the client accepts the manifest, before anything is read or copied."""
    encode = msgspec.msgpack.Encoder().encode
    length = _LIST_HEAD + sum(len(encode(_listed(each, partial(_unread, each)))) for each in found)
    if length > _LONGEST_MANIFEST:
        raise too_many(source, f"a list of files of {length >> 20} MiB")


def _write_manifest(half: _Half, listed: list[Listed]) -> None:
    with copying.create(half.manifest) as file:
        part = memoryview(msgspec.msgpack.encode(listed))
        while part:
            part = part[file.write(part) :]


def _kept(listed: list[Listed]) -> Kept:
    size = sum(each[2] for each in listed)
    if listed[0][1] == file_kinds.FILE:
        return Kept(size, listed[0][3], None)
    files = sum(each[1] == file_kinds.FILE for each in listed)
    return Kept(size, sha256(msgspec.msgpack.encode(listed)).hexdigest(), files)
