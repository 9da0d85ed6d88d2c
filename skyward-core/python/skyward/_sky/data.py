"""`sky.data`: the folder of a data set on this machine."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from time import monotonic
from typing import Final

import msgspec

from .._core import data_folders, fork, state
from .._core.descriptors import move_descriptor
from .arguments import checked_name, checked_seconds
from .cluster import node_folder
from .mover_link import Link, Why

_SHOWN: Final = 10
"""The most names of data sets that a message has."""
_TRIES: Final = (1, 2)
"""The numbers of messages that ask for one folder: it may be removed before this process has locked it."""

_found: Final[dict[str, Path]] = {}
"""The folders of this process. Its forked children have those that were found before."""
_held: Final[list[int]] = []
"""The descriptors that keep these folders from being removed as long as this process and its children live."""
_locks: Final[dict[str, threading.RLock]] = {}
"""Of each name: only one thread at a time asks for it."""


class DataError(RuntimeError):
    """A data set is not there; the message says why, and what to do."""


def data(name: str, timeout: float = 3600.0) -> Path:
    """Return the folder of a data set of the pool, on this machine.

    The pool names its data sets: `Pool::builder().data("digits", Data::folder("data/digits"))`. Each
    is brought once per machine, into a cache that later pools find it in, before the pool is ready or
    at the first call that needs it. All workers of the machine read the same files: do not change
    them, and write what you make of them elsewhere. What has changed is brought again by the next
    pool.

    Outside a pool, it is the folder `data/<name>` in the working folder.

    A process that the payload forks has the folders that were asked for before. In other processes,
    such as those that are spawned, call it in the task and pass the path on.

    Args:
        name: 1 to 100 of the characters `A-Z a-z 0-9 . _ -`, and no `.` at the beginning.
        timeout: seconds in which the data set must be here. Only the first call for a name in this
            process waits.

    Raises:
        TypeError: an argument has another type.
        ValueError: an argument has a value that it cannot have.
        DataError: the pool has no data set of that name, it cannot be brought or takes too long, or
            this is not the process of the task.
        KeyboardInterrupt: the task was cancelled.

    Example:
        files = sorted(sky.data("digits").rglob("*.npy"))
        samples = [numpy.load(file) for file in sky.shard(files)]
    """
    if isinstance(name, str) and (known := _found.get(name)) is not None:
        return known
    name, seconds = checked_name("a data set", name), checked_seconds("timeout", timeout)
    if fork.is_child or (state.cluster is None and "SKYWARD_PAYLOADS" in os.environ):
        raise DataError(
            f'process {os.getpid()} cannot ask for the data set "{name}": it was forked or started by the process of '
            f'the task. Call sky.data("{name}") in the task before, and pass the path on'
        )
    if state.cluster is None:
        return _outside(name)
    names = state.cluster.get("data") or []
    if name not in names:
        raise DataError(_unknown(name, names))
    home = node_folder("sky.data")
    if home is None:
        raise RuntimeError("sky.data cannot find the node's folder: SKYWARD_PAYLOADS is not set")
    return _in_pool(name, home, seconds)


def _outside(name: str) -> Path:
    folder = Path.cwd() / "data" / name
    if folder.is_dir():
        return folder
    raise DataError(
        f'there is no folder {folder}, which sky.data("{name}") returns outside a pool: make it or a link to it, or '
        f"run the payload in a pool with {_builder(name)}"
    )


def _unknown(name: str, names: list[str]) -> str:
    if not names:
        return f'this pool has no data sets, and sky.data asks for "{name}": add it with {_builder(name)}'
    from difflib import get_close_matches

    close = get_close_matches(name, names, 1)
    hint = f'; did you mean "{close[0]}"?' if close else "."
    shown = ", ".join(f'"{known}"' for known in names[:_SHOWN])
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f'this pool has no data set "{name}"{hint} It has {shown}{more}; add others with {_builder(name)}'


def _builder(name: str) -> str:
    return f'Pool::builder().data("{name}", Data::folder("…"))'


def _in_pool(name: str, home: str, seconds: float) -> Path:
    until = monotonic() + seconds
    lock = _locks.setdefault(name, threading.RLock())
    if not lock.acquire(timeout=min(seconds, threading.TIMEOUT_MAX)):
        raise _late(name, seconds)
    try:
        if name not in _found:
            _found[name] = _brought(name, home, until, seconds)
        return _found[name]
    finally:
        lock.release()


def _brought(name: str, home: str, until: float, seconds: float) -> Path:
    request = _Request(name, home)
    why = ""
    try:
        for number in _TRIES:
            tree = request.ask(number, until)
            if tree is None:
                raise _late(name, seconds)
            why = _hold(tree)
            if not why:
                return Path(tree)
    finally:
        request.end()
    raise DataError(
        f'the data set "{name}" was brought to this machine twice, and {why}: look for what removes files from the '
        "cache, or set SKYWARD_CACHE_DIR on the machine to a folder that nothing else uses"
    )


def _hold(tree: str) -> str:
    """Keep a folder from being removed; return why that is not possible, or an empty text."""
    lock = data_folders.use_lock_of(tree)
    try:
        held = data_folders.take(lock, True, 0)
        if held is None:
            return f"something removes {tree}"
        if os.path.isdir(tree):
            os.utime(held)
            _held.append(move_descriptor(held))
            return ""
        os.close(held)
    except OSError as error:
        if error.errno is None:
            raise  # a signal handler of the payload has raised
        return f"{lock} cannot be locked ({error.strerror})"
    return f"there is no folder {tree}"


def _late(name: str, seconds: float) -> DataError:
    return DataError(
        f'the data set "{name}" was not brought to this machine within {seconds:g} s: pass a longer timeout if it is '
        "large, and look at the pool's events"
    )


class _Answer(msgspec.Struct):
    """What the client answers."""

    n: int
    """The number of the message that is answered."""
    path: str | None = None
    error: Why | None = None


_decode: Final = msgspec.msgpack.Decoder(_Answer).decode
_encode: Final = msgspec.msgpack.Encoder().encode


class _Request:
    """Asks the client for the folder of one data set, over the mover of the node."""

    def __init__(self, name: str, home: str) -> None:
        """Ask for nothing yet.

        Args:
            name: the name of the data set.
            home: the node's folder.
        """
        self._name = name
        self._id = os.urandom(16).hex()
        self._link = Link(f"{home}/mover.sock", "", self._take, "sky.data", DataError)
        self._answers: dict[int, _Answer] = {}

    def ask(self, number: int, until: float) -> str | None:
        """Return the path of the folder; None if there is no answer until this time.

        Args:
            number: that of the message; not 1 if the folder of an earlier answer was not there.
            until: a time of the monotonic clock.

        Raises:
            DataError: the client refuses it, or the mover does not answer.
        """
        message = {"kind": "data", "n": number, "open": self._id, "name": self._name}
        self._link.send(number, _encode(message), until)
        if not self._link.wait_for(lambda: number in self._answers, until, True):
            return None
        self._link.unanswered.pop(number, None)
        answer = self._answers[number]
        if answer.error is not None:
            raise DataError(answer.error.words)
        if answer.path is None:
            raise DataError(f'the client names no folder for the data set "{self._name}"')
        return answer.path

    def end(self) -> None:
        """Ask no more."""
        self._link.end()

    def _take(self, body: bytes) -> None:
        try:
            answer = _decode(body)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            words = f'this worker cannot read what the client says of the data set "{self._name}": {error}'
            raise DataError(words) from None
        self._answers[answer.n] = answer
