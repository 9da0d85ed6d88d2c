"""The store of a node: large arrays of calls as files, which all workers of the node map.

A file is named by the hash of its bytes. Whoever needs one holds a shared lock on it, which ends with its process at
the latest; a file that nobody holds may be removed for want of room, the one that was used longest ago first.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from io import FileIO
from itertools import count
from mmap import ACCESS_COPY, mmap
from time import sleep, time
from typing import Final, NamedTuple
from weakref import WeakSet, WeakValueDictionary

from .._values import Buffer

_MOST_HELD: Final = 256
"""Files that a process holds open for its calls, and as many that it maps: a payload needs descriptors too."""
_PIECE: Final = 1 << 20
"""Bytes that are written at a time."""
_FORGOTTEN: Final = 60.0
"""Seconds after which a file that is not complete, and that nobody writes, is taken for one of a killed worker."""
_LOOK: Final = 0.02
"""Seconds until whoever waits for a file that another worker receives looks again."""
_SHARE: Final = 20
"""Of a disk one part of so many stays free for all else."""
_LOCK: Final = ".lock"
"""Whoever writes has this file; in it is how many bytes all files have, or more."""
_numbers: Final = count()


class StoreFullError(Exception):
    """There is no room for a file; the text says why."""


class Hold(NamedTuple):
    """A file of the store, which stays as long as this does."""

    digest: str
    """The hash of its bytes, in hexadecimal digits."""
    size: int
    file: FileIO
    """Has the lock."""


class Store:
    """The files of one node, as one process of it sees them."""

    def __init__(self, folder: str, limit: int) -> None:
        """Make the folder when the first file comes.

        Args:
            folder: where the files are: on the node, and the user's alone.
            limit: most bytes that all of them have together.
        """
        self._folder = folder
        self._limit = limit
        self._files: WeakValueDictionary[str, FileIO] = WeakValueDictionary()
        self._maps: WeakSet[mmap] = WeakSet()
        self.written = self.received = 0
        """Files that this process has written, and those of them that came from other nodes."""

    def put(self, data: memoryview, is_known: bool = True) -> Hold:
        """Have a file with these bytes.

        Args:
            data: bytes, at least one. Another thread may change them meanwhile: then they are those of some moment.
            is_known: whether there may be such a file. Otherwise it is written without a look, which saves a hash.

        Raises:
            StoreFullError: there is no room for it.
        """
        digest, size = "", len(data)
        if is_known:
            digest = sha256(data).hexdigest()
            known = self._files.get(digest)
            if known is not None:
                return Hold(digest, size, known)
        if len(self._files) >= _MOST_HELD:
            raise StoreFullError(f"the calls of this worker hold {_MOST_HELD} arrays already")
        try:
            file = self._open(digest, size) if is_known else None
            if file is None:
                with self._writing(size) as temporary:
                    # The name is that of the bytes that are written, whatever others do to the array.
                    hashed = sha256()
                    for start in range(0, size, _PIECE):
                        piece = bytes(data[start : start + _PIECE])
                        hashed.update(piece)
                        _write(temporary, piece)
                    digest = hashed.hexdigest()
                    file = self._publish(temporary, digest, size)
        except OSError as error:
            # A disk, a quota, descriptors, a file system without locks.
            raise StoreFullError(f"the node could not store an array: {error.strerror}") from None
        self._files[digest] = file
        return Hold(digest, size, file)

    def load(self, digest: str, size: int) -> mmap | bytearray | None:
        """The bytes of a file, for one who may change them; None where the node does not have it.

        They are read from the file as they are needed, and what is changed is a copy. The file stays as long as they.
        """
        file = self._open(digest, size)
        if file is None:
            return None
        if len(self._maps) < _MOST_HELD:
            with suppress(OSError):
                # It has a descriptor of its own, and by that the lock.
                mapped = mmap(file.fileno(), size, access=ACCESS_COPY)
                self._maps.add(mapped)
                return mapped
        data = bytearray(size)
        view = memoryview(data)
        while view:
            length = file.readinto(view)
            if not length:
                raise OSError(f"a file of the store has less than {size} bytes")
            view = view[length:]
        return data

    def receive(self, digest: str, size: int, pieces: Callable[[], Iterator[Buffer]]) -> None:
        """Have a file, of which another node has the bytes; of several workers that need it one receives them.

        Args:
            digest: its name.
            size: bytes that it has.
            pieces: begins to receive them, in order.

        Raises:
            OSError: it cannot be written.
            StoreFullError: there is no room for it.
            ValueError: other bytes came.
        """
        self._make_folder()
        waiting = os.path.join(self._folder, f".wait-{digest}")
        with _locked(waiting):
            try:
                if self._open(digest, size) is not None:
                    return
                with self._writing(size) as temporary:
                    hashed = sha256()
                    for piece in pieces():
                        hashed.update(piece)
                        _write(temporary, piece)
                    if hashed.hexdigest() != digest:
                        raise ValueError(f"what came for an array of {size} bytes is not that array")
                    self.received += 1
                    self._publish(temporary, digest, size)
            finally:
                with suppress(OSError):
                    os.unlink(waiting)

    def read(self, digest: str, offset: int, length: int) -> bytes | None:
        """A part of a file; None where the node does not have it."""
        held = self._files.get(digest)
        try:
            file = FileIO(self._path(digest)) if held is None else held
        except FileNotFoundError:
            return None
        return os.pread(file.fileno(), length, offset)

    def _open(self, digest: str, size: int) -> FileIO | None:
        """A file with its lock. One that has another length, as after a crash of the machine, is removed."""
        try:
            file = FileIO(self._path(digest))
        except FileNotFoundError:
            return None
        # Nobody has the other lock for longer than it takes to remove it.
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
        """A file without a name of its own yet, for which there is room."""
        self._make_folder()
        path = os.path.join(self._folder, f".{os.getpid()}-{next(_numbers)}")
        try:
            with _locked(os.path.join(self._folder, _LOCK)) as lock:
                self._make_room(lock, size)
                with suppress(FileNotFoundError):
                    # That of a process before this one with the same number.
                    os.unlink(path)
                file = FileIO(path, "x+")
                fcntl.flock(file, fcntl.LOCK_SH)
                # So that it counts for those who look for room meanwhile.
                os.truncate(file.fileno(), size)
            yield file
        finally:
            with suppress(OSError):
                os.unlink(path)

    def _publish(self, temporary: FileIO, digest: str, size: int) -> FileIO:
        """Give a complete file its name; what another worker has written meanwhile takes its place."""
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
        """Have room for so many bytes, and take it; remove what nobody holds, as far as it takes.

        Raises:
            StoreFullError: there is none.
        """
        disk = os.statvfs(self._folder)
        free = (disk.f_bavail - disk.f_blocks // _SHARE) * disk.f_frsize
        used = int(os.pread(lock.fileno(), 32, 0) or b"0")
        if used + size > self._limit or size > free:
            used = self._evict(size, free)
        text = b"%d" % (used + size)
        os.truncate(lock.fileno(), os.pwrite(lock.fileno(), text, 0))

    def _evict(self, size: int, free: int) -> int:
        """Remove more than it takes, so that not every file has to look at all; the bytes that are left."""
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
    """A file that one process has at a time.

    The lock is given back by its name: a child that the payload has forked has the descriptor too, and would keep it.
    """
    with FileIO(path, "r+", opener=lambda path, flags: os.open(path, flags | os.O_CREAT, 0o600)) as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                # So that an interrupt of the task comes through, on any thread.
                sleep(_LOOK)
        try:
            yield file
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)


def _remove(path: str) -> bool:
    """Remove a file unless somebody holds it."""
    try:
        with FileIO(path) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            try:
                os.unlink(path)
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)
            return True
    except OSError:
        return False


def _write(file: FileIO, data: Buffer) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) or 0 :]
