"""The cache of a machine's data sets: where it is, who uses which of them, and which of them give way to others."""

from __future__ import annotations

import errno
import os
import stat
import string
from collections.abc import Iterator
from contextlib import suppress
from time import sleep
from typing import Final

from .._core import artifacts, data_folders
from . import data_record
from .files import Refused, named
from .incoming import OnWork

_PAUSE: Final = 0.05
"""Seconds between two tries to take a lock that another process holds."""
_LENGTH: Final = 64
_DIGITS: Final = frozenset(string.digits + "abcdef")
_NAME: Final = "data"
_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH
FULL: Final = (errno.ENOSPC, errno.EDQUOT)


def is_id(text: str) -> bool:
    """Return whether this can be the id of a data set: a SHA-256 in hexadecimal digits."""
    return len(text) == _LENGTH and _DIGITS.issuperset(text)


class Cache:
    """The folder of all data sets, which the movers of all nodes of a host share."""

    def __init__(self, home: str) -> None:
        """Look for a folder that can be written.

        Args:
            home: the absolute path of the node's folder, which has the data sets if there is no cache.

        Raises:
            Refused: no folder can be written.
        """
        failed: list[str] = []
        for folder in _folders(home):
            try:
                _make(folder)
            except OSError as error:
                failed.append(f"{folder}: {error.strerror or error}")
            else:
                self.folder = folder
                return
        words = "set SKYWARD_CACHE_DIR on the machine to a folder that this user may write to"
        raise Refused("io", f"no folder can keep data sets ({'; '.join(failed)}): {words}")

    def path(self, id: str) -> str:
        """Return the path of a data set's own folder."""
        return f"{self.folder}/{id}"

    def fill(self, id: str, on_work: OnWork) -> int:
        """Wait until nobody else brings a data set; return the descriptor that holds the lock.

        Args:
            id: the data set.
            on_work: called again and again; it ends the wait by an exception if the client has gone.

        Raises:
            Refused: it cannot be locked.
        """
        return _wait_for(data_folders.fill_lock(self.folder, id), False, on_work)

    def use(self, id: str, held: int | None, on_work: OnWork) -> int:
        """Keep a data set from being removed, and record that it is used now.

        Args:
            id: the data set.
            held: the descriptor of an earlier call, which is used again or closed.
            on_work: as for `fill`.

        Returns:
            the descriptor that holds the lock.

        Raises:
            Refused: it cannot be locked.
        """
        path = data_folders.use_lock(self.folder, id)
        with named(os.fsencode(path)):
            if held is not None and not data_folders.is_lock(held, path):
                os.close(held)
                held = None
            lock = _wait_for(path, True, on_work) if held is None else held
            os.utime(lock)
        return lock

    def others(self, id: str) -> Iterator[str]:
        """Yield the folders of all data sets but one, the latest used first."""
        for other in reversed(self._by_use()):
            if other != id:
                yield self.path(other)

    def make_room(self, id: str, total: int, needed: int, most: int, on_work: OnWork) -> None:
        """Remove what nobody uses, the earliest used first, until a data set fits.

        Args:
            id: the data set, whose lock the caller holds.
            total: the bytes of all of its files.
            needed: those of the files that are missing.
            most: the most bytes that all data sets may have; 0 if there is no limit.
            on_work: called again and again meanwhile.

        Raises:
            Refused: the disk has no room, and what is left is in use.
        """
        known = self._by_use()
        others = {other: data_record.total(self.path(other)) for other in known if other != id}
        used = total + sum(others.values())
        for other, size in others.items():
            is_over = 0 < most < used
            if not is_over and needed <= self._free():
                return
            if self._remove_unused(other, on_work):
                used -= size
        free = self._free()
        if needed > free:
            raise Refused(
                "io",
                f"data set {id[:12]} needs {needed} more bytes, {free} are free on the disk of {self.folder}, and its "
                "other data sets are in use: make room there, set SKYWARD_CACHE_DIR on the machine to a folder on "
                "another disk, or use machines with larger disks",
                errno.ENOSPC,
            )

    def sweep(self, on_work: OnWork) -> None:
        """Remove the data sets of which killed processes have removed only a part.

        Raises:
            Refused: one cannot be removed.
        """
        for name in self._names():
            if name.startswith(".") and is_id(name[1:]):
                with suppress(OSError):
                    lock = data_folders.take(data_folders.fill_lock(self.folder, name[1:]), False)
                    if lock is not None:
                        try:
                            artifacts.remove_any(f"{self.folder}/{name}", on_work)
                        finally:
                            os.close(lock)

    def _names(self) -> list[str]:
        with named(os.fsencode(self.folder)):
            return os.listdir(self.folder)

    def _by_use(self) -> list[str]:
        """Return the ids of all data sets, the earliest used first."""
        used = {}
        for name in self._names():
            if is_id(name):
                used[name] = 0
                with suppress(OSError):
                    used[name] = os.stat(data_folders.use_lock(self.folder, name)).st_mtime_ns
        return sorted(used, key=lambda id: (used[id], id))

    def _free(self) -> int:
        with named(os.fsencode(self.folder)):
            disk = os.statvfs(self.folder)
        return disk.f_bavail * disk.f_frsize

    def _remove_unused(self, id: str, on_work: OnWork) -> bool:
        """Remove a data set, unless somebody uses it; return whether it was removed."""
        locks: list[int] = []
        try:
            for path in (data_folders.fill_lock(self.folder, id), data_folders.use_lock(self.folder, id)):
                lock = data_folders.take(path, False)
                if lock is None:
                    return False
                locks.append(lock)
            # Under its own name, one of which only a part is left would look whole.
            hidden = f"{self.folder}/.{id}"
            if os.path.lexists(hidden):
                artifacts.remove_any(hidden, on_work)
            os.rename(self.path(id), hidden)
            artifacts.remove_any(hidden, on_work)
        except OSError:
            return False  # what is left of it is removed later
        finally:
            for lock in locks:
                os.close(lock)
        return True


def _folders(home: str) -> Iterator[str]:
    """Yield the folders in which data sets can be, the best first."""
    own = os.environ.get("SKYWARD_CACHE_DIR")
    if not own:
        caches = os.environ.get("XDG_CACHE_HOME") or f"{os.path.expanduser('~')}/.cache"
        own = f"{caches}/skyward"
    # Without a home, this would be below the working folder.
    if os.path.isabs(own):
        yield f"{os.path.normpath(own)}/{_NAME}"
    yield f"{home}/{_NAME}"


def _make(folder: str) -> None:
    """Make the folder unless it is there, and check that files in it can be made and locked, by this user alone."""
    locks = f"{folder}/{data_folders.LOCKS}"
    artifacts.make_folders(locks)
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    for path in (folder, locks):
        about = os.stat(path)
        if about.st_uid != os.geteuid() or about.st_mode & _OTHERS:
            raise PermissionError(errno.EPERM, f"{path} belongs to another user, or others may write to it")
    probe = data_folders.take(f"{locks}/probe", True)
    if probe is not None:
        os.close(probe)


def _wait_for(path: str, is_shared: bool, on_work: OnWork) -> int:
    with named(os.fsencode(path)):
        while (lock := data_folders.take(path, is_shared)) is None:
            on_work()
            sleep(_PAUSE)
    return lock
