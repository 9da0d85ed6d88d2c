"""The folders of commits that the client brings to the node. One that has its name is complete.

A folder is prepared under a hidden name with all of its folders, links and empty files. The client
fills the files, in any order and over any number of connections.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from contextlib import suppress

from .._core import artifacts, checkpoint_folders, file_kinds, plain_names
from . import files, incoming, manifest
from .files import Refused, named, shown
from .incoming import Incoming, OnWork, nothing


class _Prepared:
    """A folder that the client fills."""

    def __init__(self, files: dict[bytes, Incoming], lock: int) -> None:
        self.files = files
        self.lock = lock
        """The descriptor that holds the lock of the folder."""


class Restored:
    """The folders of commits, and what the client has not completed of them."""

    def __init__(self, home: str) -> None:
        """Make no folder yet.

        Args:
            home: the absolute path of the node's folder.
        """
        self._home = home
        self._folder = checkpoint_folders.restored(home)
        self._lock = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        """Of each commit, so that a long check delays no other."""
        self._prepared: dict[str, _Prepared] = {}

    def path(self, commit: str) -> bytes:
        """Return the path that the folder of a commit has when it is complete."""
        return os.fsencode(f"{self._folder}/{commit}")

    def restore(self, commit: str, body: memoryview, on_work: OnWork = nothing) -> bool:
        """Prepare the folder of a commit, unless it is there.

        Args:
            commit: names the commit.
            body: its manifest.
            on_work: called again and again while files are read.

        Returns:
            whether the folder is there already, with exactly what the manifest lists.

        Raises:
            Refused: the manifest is not valid, or the disk has no room.
        """
        with self._locked(commit):
            entries = manifest.read(body)
            whole = self.path(commit)
            self._discard(commit)
            if os.path.lexists(whole):
                if _equals(whole, entries, on_work):
                    return True
                self._remove(whole)
            self._prepare(commit, entries)
            return False

    def write(self, commit: str, path: bytes, offset: int, piece: memoryview) -> None:
        """Write a piece into a file of a prepared folder.

        Raises:
            Refused: the folder is not prepared, has no such file, or the piece does not fit into it.
        """
        with self._locked(commit):
            file = self._get(commit).files.get(path)
            if file is None:
                raise Refused("invalid", f"commit {commit} has no file {shown(path)!r}")
            file.fits(offset, len(piece))
            file.write(self._hidden(commit) + b"/" + path, offset, piece)

    def complete(self, commit: str, on_work: OnWork = nothing) -> None:
        """Check all files of a prepared folder, and give it its name. It is removed if one is not as listed.

        Args:
            commit: names the commit.
            on_work: called again and again while files are read.

        Raises:
            Refused: a file is not as listed, or the folder is not prepared.
        """
        with self._locked(commit):
            # The answer to an earlier request may have been lost.
            if commit not in self._prepared and os.path.lexists(self.path(commit)):
                return
            folder = self._hidden(commit)
            for path, file in self._get(commit).files.items():
                try:
                    file.check(folder + b"/" + path, on_work)
                except Refused:
                    self._discard(commit)
                    raise
            with named(folder):
                os.rename(folder, self.path(commit))
            os.close(self._prepared.pop(commit).lock)

    def remove(self, commit: str) -> None:
        """Remove the folder of a commit, which nobody reads any more; one that is not there is no error.

        Raises:
            Refused: it cannot be removed.
        """
        with self._locked(commit):
            self._discard(commit)
            self._remove(self.path(commit))

    def sweep(self) -> None:
        """Remove what earlier movers have left incomplete."""
        artifacts.sweep(self._folder)

    def _locked(self, commit: str) -> threading.Lock:
        if not plain_names.is_plain(commit):
            words = f"the name of a commit has {plain_names.FORM}, unlike {commit[:100]!r}"
            raise Refused("invalid", words)
        with self._lock:
            return self._locks.setdefault(commit, threading.Lock())

    def _get(self, commit: str) -> _Prepared:
        prepared = self._prepared.get(commit)
        if prepared is None:
            raise Refused("missing", f"the folder of commit {commit} is not prepared: send Restore first")
        return prepared

    def _hidden(self, commit: str) -> bytes:
        return os.fsencode(f"{self._folder}/{artifacts.hidden(commit)}")

    def _prepare(self, commit: str, entries: list[manifest.Listed]) -> None:
        for parent in (f"{self._home}/{checkpoint_folders.FOLDER}", self._folder):
            with named(os.fsencode(parent)), suppress(FileExistsError):
                artifacts.make_folder(parent)
        self._check_room(commit, sum(entry[2] for entry in entries if entry[1] == file_kinds.FILE))
        folder = self._hidden(commit)
        with named(folder):
            lock = artifacts.make_locked(os.fsdecode(folder))
        self._prepared[commit] = _Prepared({}, lock)
        try:
            for path, kind, size, digest, executable, target in entries[1:]:
                whole = folder + b"/" + path
                with named(whole):
                    if kind == file_kinds.FOLDER:
                        artifacts.make_folder(os.fsdecode(whole))
                    elif kind == file_kinds.LINK:
                        os.symlink(target, whole)
                    else:
                        _create(whole, executable)
                        self._prepared[commit].files[path] = Incoming(path, size, digest)
        except Refused:
            self._discard(commit)
            raise

    def _check_room(self, commit: str, needed: int) -> None:
        disk = os.statvfs(self._folder)
        free = disk.f_bavail * disk.f_frsize
        if disk.f_blocks and free < needed:
            words = f"commit {commit} has {needed} bytes, and {free} are free on the disk of {self._folder}"
            raise Refused("io", f"{words}: make room on the node, or use machines with larger disks", errno.ENOSPC)

    def _discard(self, commit: str) -> None:
        """Remove what is not complete of a commit."""
        prepared = self._prepared.pop(commit, None)
        if prepared is not None:
            os.close(prepared.lock)
        self._remove(self._hidden(commit))

    def _remove(self, path: bytes) -> None:
        # So there is never a part of a commit.
        hidden = f"{self._folder}/{artifacts.hidden(os.urandom(16).hex())}"
        with named(path), suppress(FileNotFoundError):
            os.rename(path, hidden)
            artifacts.remove_any(hidden)


def _create(path: bytes, executable: bool) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(descriptor, 0o700 if executable else 0o600)
    finally:
        os.close(descriptor)


def _equals(root: bytes, entries: list[manifest.Listed], on_work: OnWork) -> bool:
    """Return whether a folder has exactly what a manifest lists."""
    try:
        with named(root):
            if not stat.S_ISDIR(os.lstat(root).st_mode):
                return False
        found = {
            path: (kind, size, executable, target) for path, kind, _, size, _, executable, target in files.entries(root)
        }
        if len(found) != len(entries):
            return False
        for path, kind, size, _, executable, target in entries:
            its_kind, its_size, its_executable, its_target = found.get(path, ("", 0, False, b""))
            if its_kind != kind or (kind == file_kinds.LINK and its_target != target):
                return False
            if kind == file_kinds.FILE and (its_size, its_executable) != (size, executable):
                return False
        return all(
            incoming.sha256_of(root + b"/" + path, on_work) == digest
            for path, kind, _, digest, _, _ in entries
            if kind == file_kinds.FILE
        )
    except Refused:
        return False  # something is missing, cannot be read, or is no file
