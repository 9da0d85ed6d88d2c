"""The data sets of a pool on its machine: the client lists what each has, and sends what is missing.

The mover of each node keeps what its pool uses from being removed, for as long as it runs.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from time import monotonic
from typing import Final

from .._core import file_kinds
from .._core.complaint import complain
from . import manifest
from .data_cache import FULL, Cache, is_id
from .data_tree import Tree
from .files import Refused, shown
from .incoming import OnWork, nothing

MOST_RANGES: Final = 4096
"""The most ranges of one `Fill`."""
_IDLE: Final = 120.0
"""Seconds without a request after which a fill is given up, so that another mover can go on."""
_PAUSE: Final = 0.5
"""Seconds between two signs of work while another connection is served."""

Range = tuple[int, int, int]
"""The index of a file in the manifest, an offset and a length."""


class _Fill:
    """A data set that the client fills."""

    def __init__(self, cache: Cache, tree: Tree, lock: int) -> None:
        self.cache = cache
        self.tree = tree
        self.lock = lock
        """The descriptor that keeps other movers from filling it."""
        self.is_watched = False
        self.ended = threading.Event()
        self.since = monotonic()
        """When the last request was answered."""


class DataSets:
    """The data sets that clients have attached, and those that they fill."""

    def __init__(self, home: str) -> None:
        """Make no folder yet.

        Args:
            home: the absolute path of the node's folder.
        """
        self._home = home
        self._lock = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        """Of each data set, so that a long check delays no other."""
        self._uses: dict[str, int] = {}
        """The descriptors that keep data sets from being removed."""
        self._fills: dict[str, _Fill] = {}
        self._complete: dict[str, bytes] = {}
        """The trees of those that are complete."""

    def attach(self, body: memoryview, most: int, on_work: OnWork = nothing) -> tuple[str, bytes, list[int]]:
        """Begin to use a data set, and to fill it if something is missing.

        Args:
            body: its manifest.
            most: the most bytes that all data sets of the machine may have; 0 if there is no limit.
            on_work: called again and again; it ends the wait for another mover by an exception.

        Returns:
            the id of the data set, the path of its tree, and the indices of the files that are missing.

        Raises:
            Refused: the manifest is not valid, the disk has no room, or no folder can have the cache.
        """
        entries = manifest.read(body)
        id = sha256(body).hexdigest()
        with self._alone(id, on_work):
            fill = self._fills.get(id)
            if fill is None:
                self._complete.pop(id, None)
                cache = Cache(self._home)
                fill = _Fill(cache, Tree(cache.path(id), entries), cache.fill(id, on_work))
                self._fills[id] = fill
            try:
                self._begin(id, fill, most, on_work)
            except BaseException:
                self._end(id)
                raise
            return id, os.fsencode(fill.tree.path), sorted(fill.tree.missing)

    def fill(self, id: str, ranges: list[Range], body: memoryview, on_work: OnWork = nothing) -> None:
        """Write ranges of files.

        Args:
            id: the data set.
            ranges: the ranges.
            body: their bytes, one after another.
            on_work: called again and again while files are read.

        Raises:
            Refused: the data set is not being filled, a range is not one of a listed file, the disk
                has no room, or a file is not as it is listed.
        """
        with self._alone(id, on_work):
            fill = self._fills.get(id)
            if fill is None:
                raise _not_filled(id)
            _check(fill.tree, ranges, len(body))
            try:
                begin = 0
                for index, offset, length in ranges:
                    fill.tree.write(index, offset, body[begin : begin + length], on_work)
                    begin += length
            except Refused as refused:
                if refused.number not in FULL:
                    raise
                words = f"make room on the disk of {fill.cache.folder}, or set SKYWARD_CACHE_DIR on the machine"
                raise Refused("io", f"{refused}: {words} to a folder on another disk", refused.number) from None
            finally:
                fill.since = monotonic()

    def publish(self, id: str, on_work: OnWork = nothing) -> bytes:
        """End the fill of a data set, of which all files must be there.

        Args:
            id: the data set.
            on_work: called again and again while files are read.

        Returns:
            the path of the tree.

        Raises:
            Refused: a file is not as it is listed, or the data set is not being filled.
        """
        with self._alone(id, on_work):
            fill = self._fills.get(id)
            if fill is None:
                # The answer to an earlier request may have been lost.
                if id in self._complete:
                    return self._complete[id]
                raise _not_filled(id)
            try:
                fill.tree.complete(on_work)
            except BaseException:
                self._give_up(id)
                raise
            return self._completed(id)

    def _begin(self, id: str, fill: _Fill, most: int, on_work: OnWork) -> None:
        """Make the tree as it is listed, as far as nothing must be sent."""
        cache, tree = fill.cache, fill.tree
        self._uses[id] = cache.use(id, self._uses.pop(id, None), on_work)
        tree.reconcile(on_work)
        if tree.missing:
            cache.sweep(on_work)
            tree.link(cache.others(id), on_work)
        if not tree.missing:
            self._completed(id)
            return
        try:
            cache.make_room(id, tree.total, tree.needed, most, on_work)
        except Refused:
            with suppress(Refused):
                tree.record()
            raise
        # So its size counts from now on, and what is there need not be read again after an interruption.
        tree.record()
        fill.since = monotonic()
        if not fill.is_watched:
            threading.Thread(target=self._watch, args=(id, fill), daemon=True).start()
            fill.is_watched = True

    def _completed(self, id: str) -> bytes:
        try:
            tree = self._fills[id].tree
            tree.record()
            path = self._complete[id] = os.fsencode(tree.path)
        finally:
            self._end(id)
        return path

    def _give_up(self, id: str) -> None:
        """End a fill that is not complete. What is there counts at the next `Attach`."""
        tree = self._fills[id].tree
        try:
            tree.discard(nothing)
            tree.record()
        except Refused as refused:
            complain(f"data set {id[:12]} cannot be left as it is, and is checked when it is used next: {refused}")
        finally:
            self._end(id)

    def _end(self, id: str) -> None:
        """Let other movers fill a data set, unless that was done."""
        fill = self._fills.pop(id, None)
        if fill is not None:
            fill.ended.set()
            os.close(fill.lock)

    def _watch(self, id: str, fill: _Fill) -> None:
        """Give up a fill whose client does not go on: other movers wait for it."""
        while not fill.ended.wait(max(0.0, fill.since + _IDLE - monotonic())):
            with self._alone(id, nothing):
                if self._fills.get(id) is fill and monotonic() - fill.since >= _IDLE:
                    complain(f"the mover gives up the fill of data set {id[:12]}: no piece came for {_IDLE:g} s")
                    self._give_up(id)

    @contextmanager
    def _alone(self, id: str, on_work: OnWork) -> Iterator[None]:
        """Context manager: no other connection has this data set changed meanwhile."""
        if not is_id(id):
            raise Refused("invalid", f"the id of a data set has 64 lower-case hexadecimal digits, unlike {id[:100]!r}")
        with self._lock:
            lock = self._locks.setdefault(id, threading.Lock())
        while not lock.acquire(timeout=_PAUSE):
            on_work()
        try:
            yield
        finally:
            lock.release()


def _not_filled(id: str) -> Refused:
    return Refused("missing", f"data set {id[:12]} is not being filled: send Attach first")


def _check(tree: Tree, ranges: list[Range], size: int) -> None:
    """Refuse ranges that are not those of listed files, or not of these bytes."""
    if len(ranges) > MOST_RANGES:
        raise Refused("invalid", f"one Fill has at most {MOST_RANGES} ranges, and {len(ranges)} have arrived")
    total = sum(length for _, _, length in ranges)
    if total != size:
        raise Refused("invalid", f"the ranges have {total} bytes, and the body has {size}")
    for index, offset, length in ranges:
        path, kind, whole, *_ = tree.entries[index] if index < len(tree.entries) else (b"", "", 0)
        if kind != file_kinds.FILE:
            raise Refused("invalid", f"entry {index} of the manifest is no file")
        if offset + length > whole:
            raise Refused("invalid", f"{shown(path)} has {whole} bytes, and a range ends at {offset + length}")
