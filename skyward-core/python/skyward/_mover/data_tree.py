"""The tree of a data set: it is made as its manifest lists it, in place, from whatever is there.

A tree that is new, one whose fill was interrupted, and one that a payload has changed are made right
by the same steps. Each step leaves a state from which they can begin anew.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from io import FileIO
from typing import Final

from .._core import artifacts, data_folders, file_kinds
from .._core.reflinks import share
from . import data_record, files, incoming
from .data_record import Recorded
from .files import Refused, named, shown
from .incoming import Incoming, OnWork
from .manifest import Listed
from .messages import Identity

_OWNER: Final = 0o700
_FOLDER: Final = 0o755
_FILE: Final = 0o444
_PROGRAM: Final = 0o555
_OPEN: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_MODE: Final = 0o7777
_MODIFIED: Final = 1_000_000_000 * 10**9
"""The time of modification of all files. A change within the clock's tick in which a file was checked
would leave a time of then as it is; it never leaves this one.
"""


class Tree:
    """The tree of one data set. Who uses it holds the lock of those who fill."""

    def __init__(self, folder: str, entries: list[Listed]) -> None:
        """Change nothing yet.

        Args:
            folder: the path of the data set's own folder.
            entries: what the manifest lists.
        """
        self.path = f"{folder}/{data_folders.FILES}"
        """The path of the tree."""
        self.entries = entries
        self.missing: set[int] = set()
        """The indices of the files that are not in the tree as they are listed."""
        self.total = sum(size for _, kind, size, _, _, _ in entries if kind == file_kinds.FILE)
        """The bytes of all files."""
        self._folder = folder
        self._root = os.fsencode(self.path)
        self._found: dict[int, Identity] = {}
        """The identities of the files that are in the tree."""
        self._recorded: list[Recorded] = []
        """The files of the record that is on the disk."""
        self._incoming: dict[int, Incoming] = {}

    @property
    def needed(self) -> int:
        """The bytes of all files that are missing."""
        return sum(self.entries[index][2] for index in self.missing)

    def reconcile(self, on_work: OnWork) -> None:
        """Remove what is not as it is listed, and make what needs no content of files.

        Args:
            on_work: called again and again meanwhile.

        Raises:
            Refused: something cannot be read, made or removed.
        """
        self._make_root(on_work)
        self._recorded = data_record.read(self._folder)
        present = self._prune({path: (identity, digest) for path, identity, digest, _ in self._recorded}, on_work)
        self.missing = set()
        for index, (path, kind, size, _, _, target) in enumerate(self.entries[1:], 1):
            whole = self._whole(index)
            if path in present:
                continue
            on_work()
            if kind == file_kinds.FILE:
                self.missing.add(index)
                if size == 0:
                    self._incoming[index] = self._expected(index)
                    self._incoming[index].write(self._hidden(index), 0, memoryview(b""), os.O_CREAT | os.O_TRUNC)
                    self._install(index, on_work)
                continue
            with named(whole):
                if kind == file_kinds.FOLDER:
                    os.mkdir(whole, _FOLDER)
                    os.chmod(whole, _FOLDER)
                else:
                    os.symlink(target, whole)

    def link(self, others: Iterable[str], on_work: OnWork) -> None:
        """Take missing files from other data sets: they share the content, or the whole file.

        Args:
            others: the folders of the other data sets.
            on_work: called again and again meanwhile.
        """
        wanted: dict[tuple[str, bool], list[int]] = {}
        for index in self.missing:
            _, _, _, digest, executable, _ = self.entries[index]
            wanted.setdefault((digest, executable), []).append(index)
        for other in others:
            if not wanted:
                break
            root = os.fsencode(f"{other}/{data_folders.FILES}")
            for path, identity, digest, executable in data_record.read(other):
                key = digest, executable
                if key not in wanted:
                    continue
                on_work()
                left = [index for index in wanted[key] if not self._link(root + b"/" + path, identity, index)]
                if left:
                    wanted[key] = left
                else:
                    del wanted[key]

    def write(self, index: int, offset: int, piece: memoryview, on_work: OnWork) -> None:
        """Write a piece of a file, and give the file its name when all of it has come.

        A piece of a file that is there already is ignored.

        Raises:
            Refused: it cannot be written, or the file is not as it is listed.
        """
        if index not in self.missing:
            return
        file = self._incoming.get(index)
        if file is None:
            file = self._incoming[index] = self._expected(index)
        # A request that was repeated has what is there.
        again = len(piece) - file.unhashed(offset, len(piece))
        if again < len(piece):
            file.write(self._hidden(index), offset + again, piece[again:], os.O_CREAT)
        if file.has_all:
            self._install(index, on_work)

    def complete(self, on_work: OnWork) -> None:
        """Check that all files are as they are listed.

        Raises:
            Refused: one is not.
        """
        for index in sorted(self.missing):
            if index not in self._incoming:
                raise Refused("changed", f"{shown(self.entries[index][0])} has not come")
            self._install(index, on_work)
        for index, identity in self._found.items():
            on_work()
            whole = self._whole(index)
            with named(whole):
                if files.identity(os.lstat(whole)) != identity:
                    raise Refused("changed", f"{shown(whole)} has changed since it came")

    def record(self) -> None:
        """Record what is in the tree.

        Raises:
            Refused: that cannot be written.
        """
        recorded: list[Recorded] = []
        for index, identity in sorted(self._found.items()):
            path, _, _, digest, executable, _ = self.entries[index]
            recorded.append((path, identity, digest, executable))
        if recorded and recorded == self._recorded:
            return
        with named(os.fsencode(self._folder)):
            data_record.write(self._folder, self.total, recorded)
        self._recorded = recorded

    def discard(self, on_work: OnWork) -> None:
        """Remove what has come only in part, also for earlier movers.

        Raises:
            Refused: it cannot be removed.
        """
        self._incoming.clear()
        with named(os.fsencode(self._folder)):
            names = [name for name in os.listdir(self._folder) if name.startswith(".")]
            for name in names:
                artifacts.remove_any(f"{self._folder}/{name}", on_work)

    def _make_root(self, on_work: OnWork) -> None:
        for path, mode in ((self._folder, _OWNER), (self.path, _FOLDER)):
            with named(os.fsencode(path)):
                if os.path.islink(path) or (os.path.lexists(path) and not os.path.isdir(path)):
                    artifacts.remove_any(path, on_work)
                with suppress(FileExistsError):
                    os.mkdir(path, mode)
                os.chmod(path, mode)
        self.discard(on_work)

    def _prune(self, known: dict[bytes, tuple[Identity, str]], on_work: OnWork) -> set[bytes]:
        """Remove all that is not as it is listed, and return the paths of all that is."""
        listed = {path: index for index, (path, *_) in enumerate(self.entries)}
        present: set[bytes] = set()
        self._found = {}
        waiting = [b""]
        while waiting:
            folder = waiting.pop()
            with named(self._root + b"/" + folder), os.scandir(self._root + b"/" + folder) as scanned:
                names = [entry.name for entry in scanned]
            for name in names:
                on_work()
                path = folder + b"/" + name if folder else name
                index = listed.get(path)
                if index is not None and self._is_listed(index, known.get(path), on_work):
                    present.add(path)
                    if self.entries[index][1] == file_kinds.FOLDER:
                        waiting.append(path)
                    continue
                with named(self._root + b"/" + path):
                    artifacts.remove_any(os.fsdecode(self._root + b"/" + path), on_work)
        return present

    def _is_listed(self, index: int, known: tuple[Identity, str] | None, on_work: OnWork) -> bool:
        """Return whether something is as it is listed, but for its mode, which is set."""
        _, kind, size, digest, executable, target = self.entries[index]
        whole = self._whole(index)
        with named(whole):
            about = os.lstat(whole)
            if file_kinds.kind(about.st_mode) != kind:
                return False
            if kind == file_kinds.LINK:
                return os.readlink(whole) == target
            if kind == file_kinds.FOLDER:
                _set_mode(whole, about, _FOLDER)
                return True
            if about.st_size != size:
                return False
            if known != (files.identity(about), digest):
                _set_mode(whole, about, _mode(executable))
                if not _has(whole, about, digest, on_work):
                    return False
                about = _finish(whole, executable)
            else:
                _set_mode(whole, about, _mode(executable))
            self._found[index] = files.identity(about)
        return True

    def _link(self, source: bytes, identity: Identity, index: int) -> bool:
        """Take a file that another data set has, unless it was changed there or cannot be taken."""
        executable = self.entries[index][4]
        hidden = self._hidden(index)
        try:
            if files.identity(os.lstat(source)) != identity:
                return False
            if not _share(source, identity, hidden):
                os.link(source, hidden, follow_symlinks=False)
                if files.identity(os.lstat(hidden)) != identity:
                    os.unlink(hidden)
                    return False
            self._name(index, hidden, _finish(hidden, executable))
        except OSError:
            # It has gone, has too many links already, or the file system has no links: then it is sent.
            with suppress(OSError):
                os.unlink(hidden)
            return False
        return True

    def _install(self, index: int, on_work: OnWork) -> None:
        """Check a file that has come, and give it its name."""
        hidden = self._hidden(index)
        try:
            self._incoming[index].check(hidden, on_work)
        except Refused:
            # Then it can come again.
            del self._incoming[index]
            with suppress(OSError):
                os.unlink(hidden)
            raise
        with named(self._whole(index)):
            self._name(index, hidden, _finish(hidden, self.entries[index][4]))
        del self._incoming[index]

    def _name(self, index: int, hidden: bytes, about: os.stat_result) -> None:
        os.rename(hidden, self._whole(index))
        self._found[index] = files.identity(about)
        self.missing.discard(index)

    def _expected(self, index: int) -> Incoming:
        path, _, size, digest, _, _ = self.entries[index]
        return Incoming(path, size, digest)

    def _whole(self, index: int) -> bytes:
        return self._root + b"/" + self.entries[index][0]

    def _hidden(self, index: int) -> bytes:
        """Return the path of a file that is not complete."""
        return os.fsencode(f"{self._folder}/.{index}")


def _has(path: bytes, about: os.stat_result, digest: str, on_work: OnWork) -> bool:
    """Return whether a file has this digest, and nothing changes it."""
    try:
        return incoming.sha256_of(path, on_work) == digest and files.identity(os.lstat(path)) == files.identity(about)
    except Refused:
        return False  # the disk cannot read it


def _share(source: bytes, identity: Identity, copy: bytes) -> bool:
    """Make a copy that shares the content of a file; return False if the file system cannot do that."""
    with FileIO(source, opener=lambda path, flags: os.open(path, flags | _OPEN)) as content, FileIO(copy, "x") as file:
        # What is shared has been checked if the file was not changed until then.
        if share(content, file) and files.identity(os.fstat(content.fileno())) == identity:
            return True
    os.unlink(copy)
    return False


def _finish(path: bytes, executable: bool) -> os.stat_result:
    """Give a file the mode and the time of all, and return what is known of it then."""
    os.utime(path, ns=(_MODIFIED, _MODIFIED), follow_symlinks=False)
    os.chmod(path, _mode(executable))
    return os.lstat(path)


def _set_mode(path: bytes, about: os.stat_result, mode: int) -> None:
    if about.st_mode & _MODE != mode & _MODE:
        os.chmod(path, mode & _MODE)


def _mode(executable: bool) -> int:
    return _PROGRAM if executable else _FILE
