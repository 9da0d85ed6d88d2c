"""The store of a node: files with large arrays of calls, which all workers of the node map.

A file is named by the hash of its bytes (`hashing`). A process that needs a file holds a shared
lock on it, which ends at the latest with the process. Files that no process holds may be removed to
make room; the least recently used ones go first.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from itertools import count
from mmap import ACCESS_COPY, mmap
from time import sleep, time
from typing import Final, NamedTuple
from weakref import WeakSet, WeakValueDictionary

from .._values.codec import Buffer
from .handlers import ignored, raised_by_handler
from .hashing import Hash, hash_of
from .mappings import Mappings

_MOST_HELD: Final = 256
"""The most files that a process holds open for its calls, and the most that it maps: the payload
needs descriptors too.
"""
_FORGOTTEN: Final = 60.0
"""Seconds after which an incomplete file that nobody writes is attributed to a killed worker."""
_LOOK: Final = 0.02
"""Seconds between two checks for a file that another worker receives."""
_SHARE: Final = 20
"""One part in this many of a disk is kept free for other uses."""
_LOCK: Final = ".lock"
"""The file that a writer locks. Its content is an upper bound of the bytes of all files."""
_numbers: Final = count()


class StoreFullError(Exception):
    """There is no room for a file; the text says why."""


class Hold(NamedTuple):
    """A file of the store, which is kept while this object lives."""

    digest: str
    """The hash of its bytes, in hexadecimal digits."""
    size: int
    file: FileIO
    """Holds the lock."""


class Store:
    """The files of one node, as seen by one of its processes."""

    def __init__(self, folder: str, limit: int) -> None:
        """Open a store; its folder is created with the first file.

        Args:
            folder: the folder of the files, on the node's disk and private to the user.
            limit: the most bytes of all files together.
        """
        self._folder = folder
        self._limit = limit
        self._files: WeakValueDictionary[str, FileIO] = WeakValueDictionary()
        self._maps: WeakSet[mmap] = WeakSet()
        self.mappings = Mappings()
        self.written = self.received = 0
        """The number of files that this process has written, and of those among them from other
        nodes.
        """

    def put(self, data: memoryview, is_known: bool = True) -> Hold:
        """Make sure that there is a file with these bytes.

        Args:
            data: the bytes, at least one. If another thread changes them meanwhile, the file has a
                mixture of old and new bytes.
            is_known: whether the file may exist already. If not, it is written at once, and
                hashed only while it is written.

        Raises:
            StoreFullError: there is no room for the file.
        """
        digest, size = "", len(data)
        if is_known:
            digest = hash_of(data)
            known = self._files.get(digest)
            if known is not None:
                return Hold(digest, size, known)
        if len(self._files) >= _MOST_HELD:
            raise StoreFullError(f"the calls of this worker hold {_MOST_HELD} arrays already")
        try:
            file = self._open(digest, size) if is_known else None
            if file is None:
                with self._writing(size) as temporary:
                    digest = hash_of(data, temporary)
                    file = self._publish(temporary, digest, size)
        except OSError as error:
            if raised_by_handler(error):
                raise
            # For example the disk, a quota, too few descriptors, or a file system without locks.
            raise StoreFullError(f"the node could not store an array: {error.strerror}") from None
        # New arrays with the bytes of an earlier one share its descriptor.
        return Hold(digest, size, self._files.setdefault(digest, file))

    def load(self, digest: str, size: int) -> tuple[mmap | bytearray, FileIO] | None:
        """Return the bytes of a file and the file; None if it is not on the node.

        The caller may change the bytes. They are read from the file on demand, and changes are made
        to a private copy. The file is kept while its bytes or the object live.
        """
        kept = self.mappings.take(digest)
        if kept is not None:
            return kept
        file = self._open(digest, size)
        if file is None:
            return None
        if len(self._maps) < _MOST_HELD:
            with ignored(OSError):
                # The mapping has its own descriptor, and through that the lock.
                mapped = mmap(file.fileno(), size, access=ACCESS_COPY)
                self._maps.add(mapped)
                return mapped, file
        data = bytearray(size)
        view = memoryview(data)
        while view:
            length = file.readinto(view)
            if not length:
                raise OSError(f"a file of the store has fewer than {size} bytes")
            view = view[length:]
        return data, file

    def receive(self, digest: str, size: int, pieces: Callable[[], Iterator[Buffer]]) -> None:
        """Fetch a file from another node; if several workers need it, only one of them fetches it.

        Args:
            digest: the name of the file.
            size: its size in bytes.
            pieces: starts to fetch the file, and yields its bytes in order.

        Raises:
            OSError: the file cannot be written.
            StoreFullError: there is no room for the file.
            ValueError: the bytes do not match the name.
        """
        self._make_folder()
        waiting = os.path.join(self._folder, f".wait-{digest}")
        with _locked(waiting):
            try:
                if self._open(digest, size) is not None:
                    return
                with self._writing(size) as temporary:
                    hashed = Hash()
                    for piece in pieces():
                        hashed.update(piece)
                        _write(temporary, piece)
                    if hashed.hexdigest() != digest:
                        raise ValueError(f"the bytes that arrived for an array of {size} bytes do not match its hash")
                    self.received += 1
                    self._publish(temporary, digest, size)
            finally:
                with ignored(OSError):
                    os.unlink(waiting)

    def read(self, digest: str, offset: int, length: int) -> bytes | None:
        """Return a part of a file; None if the node does not have it."""
        held = self._files.get(digest)
        try:
            file = FileIO(self._path(digest)) if held is None else held
        except FileNotFoundError:
            return None
        return os.pread(file.fileno(), length, offset)

    def _open(self, digest: str, size: int) -> FileIO | None:
        """Open and lock a file; remove one with another size, as after a crash of the machine."""
        try:
            file = FileIO(self._path(digest))
        except FileNotFoundError:
            return None
        # The exclusive lock is held only for the time that removing takes.
        fcntl.flock(file, fcntl.LOCK_SH)
        about = os.fstat(file.fileno())
        if about.st_nlink and about.st_size != size:
            with suppress(FileNotFoundError):
                os.unlink(self._path(digest))
            return None
        if about.st_nlink == 0:
            return None
        os.utime(file.fileno())
        return file

    @contextmanager
    def _writing(self, size: int) -> Iterator[FileIO]:
        """Create a file without its final name, for which there is room."""
        self._make_folder()
        path = os.path.join(self._folder, f".{os.getpid()}-{next(_numbers)}")
        try:
            with _locked(os.path.join(self._folder, _LOCK)) as lock:
                self._make_room(lock, size)
                with suppress(FileNotFoundError):
                    # A leftover of an earlier process with the same process id.
                    os.unlink(path)
                file = FileIO(path, "x+")
                fcntl.flock(file, fcntl.LOCK_SH)
                # Set the size now, so that other processes that look for room count it.
                os.truncate(file.fileno(), size)
            yield file
        finally:
            with ignored(OSError):
                os.unlink(path)

    def _publish(self, temporary: FileIO, digest: str, size: int) -> FileIO:
        """Give a complete file its name, or return the one that another worker has published."""
        while True:
            try:
                os.link(str(temporary.name), self._path(digest))
                self.written += 1
                return temporary
            except FileExistsError:
                other = self._open(digest, size)
                if other is not None:
                    return other

    def _make_folder(self) -> None:
        os.makedirs(self._folder, mode=0o700, exist_ok=True)

    def _make_room(self, lock: FileIO, size: int) -> None:
        """Reserve room for this many bytes; remove unused files as needed.

        Raises:
            StoreFullError: there is no room.
        """
        disk = os.statvfs(self._folder)
        free = (disk.f_bavail - disk.f_blocks // _SHARE) * disk.f_frsize
        used = int(os.pread(lock.fileno(), 32, 0) or b"0")
        if used + size > self._limit or size > free:
            used = self._evict(size, free)
        text = b"%d" % (used + size)
        os.truncate(lock.fileno(), os.pwrite(lock.fileno(), text, 0))

    def _evict(self, size: int, free: int) -> int:
        """Remove files, some more than needed, so that this is rare; return the bytes left."""
        files = []
        for entry in os.scandir(self._folder):
            if entry.name != _LOCK:
                with suppress(FileNotFoundError):
                    about = entry.stat()
                    files.append((about.st_mtime, about.st_size, entry.path, entry.name.startswith(".")))
        used = sum(file[1] for file in files)
        limit = min(self._limit, used + free)
        forgotten = time() - _FORGOTTEN
        for changed, length, path, is_incomplete in sorted(files):
            if is_incomplete and changed > forgotten:
                continue
            if (is_incomplete or used + size > limit - limit // 10) and _remove(path):
                used -= length
        if used + size > limit:
            bound = f"`Limits::store_bytes` is {limit}"
            if limit < self._limit:
                bound = f"its disk has room for {max(limit - used, 0)} more"
            raise StoreFullError(f"the store of the node holds {used} bytes that are in use, and {bound}")
        return used

    def _path(self, digest: str) -> str:
        return os.path.join(self._folder, digest)


@contextmanager
def _locked(path: str) -> Iterator[FileIO]:
    """Lock a file exclusively.

    The lock is released explicitly: a child that the payload has forked shares the descriptor, and
    would keep the lock.
    """
    with FileIO(path, "r+", opener=lambda path, flags: os.open(path, flags | os.O_CREAT, 0o600)) as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                # Poll, so that an interrupt of the task gets through, on any thread.
                sleep(_LOOK)
        try:
            yield file
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)


def _remove(path: str) -> bool:
    """Remove a file unless a process holds it; return whether it was removed."""
    with ignored(OSError), FileIO(path) as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            os.unlink(path)
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)
        return True
    return False


def _write(file: FileIO, data: Buffer) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) or 0 :]
