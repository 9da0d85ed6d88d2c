"""What a worker has buffered is written before its process ends.

A worker ends by `os._exit`, so that no thread that a payload or a framework has left behind can keep
it. Therefore this module does what the ends of Python and of the C library would do for open files.
"""

from __future__ import annotations

import gc
import io
import sys
from _io import _IOBase  # type: ignore[import-not-found, unused-ignore]
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from threading import Thread
from time import monotonic
from types import FunctionType, ModuleType
from typing import Any, Final

from .._core import strays
from .._core.package_names import is_root

_LONGEST: Final = 2.0
"""The most seconds for all files: what is written may go to a full pipe, or to a server that is
gone.
"""
_IN_ORDER: Final = 0.5
"""The seconds of these in which they are written one after another."""
_IN_MEMORY: Final = (io.RawIOBase, io.BytesIO, io.StringIO)
"""Files without a buffer, and those that are nothing else."""
_STAYING: Final = (FunctionType, ModuleType, type)


def write_out() -> None:
    """Write what open files have buffered, and finalize what the modules of payloads hold."""
    end = monotonic() + _LONGEST
    strays.note()
    _write_files(end)
    # A thread that executes code of a payload would fail without these objects, and report that.
    if not strays.threads:
        _within(end, [_clear_payloads])


def write_files() -> None:
    """Write what open files have buffered, before code that may not return."""
    _write_files(monotonic() + _LONGEST)


def _write_files(end: float) -> None:
    files = [*_files()]
    # Twice: to write the buffer of one file may fill that of another one.
    _within(end, [*(file.flush for file in (*files, *files)), _flush_stdio])


def _files() -> Iterator[Any]:
    """Yield the open files that may have a buffer."""
    gc.unfreeze()
    for thing in gc.get_objects():
        # Asked of the type: an object may pretend to be of a class, and do much to find out.
        kind = type(thing)
        if issubclass(kind, _IOBase) and not issubclass(kind, _IN_MEMORY):
            yield thing


def _flush_stdio() -> None:
    """Write what the C library has buffered, such as the output of `printf` in native code."""
    import ctypes

    ctypes.CDLL(None).fflush(None)


def _clear_payloads() -> None:
    """Remove what the modules of payloads hold, the latest first, so that it is finalized.

    An archive gets its directory, and a compressed file its last block. Functions, classes and
    modules stay at first, because finalizers use them. What only functions and classes hold, as a
    closure or an attribute, is finalized with them.
    """
    modules = [module for name, module in sys.modules.items() if is_root(name.partition(".")[0])][::-1]
    for staying in (_STAYING, ModuleType):
        for names in map(vars, modules):
            for name in list(names)[::-1]:
                if not name.startswith("__") and not issubclass(type(names[name]), staying):
                    del names[name]
    if modules:
        gc.collect()


def _within(end: float, actions: Iterable[Callable[[], object]]) -> None:
    """Do these one after another, and return when all is done, at the latest at the end.

    A file may lie above another one, such as text above a compressed file, and few allow that both
    are written at the same time. What is left after a while is done at the same time nevertheless.
    """
    waiting = deque(actions)

    def do_all() -> None:
        with suppress(IndexError):  # the others have been taken meanwhile
            while waiting:
                _attempt(waiting.popleft())

    threads = [thread] if (thread := _start(do_all)) else []
    if thread is not None:
        thread.join(_IN_ORDER)
    with suppress(IndexError):
        while waiting:
            thread = _start(waiting.popleft())
            if thread is not None:
                threads.append(thread)
    for thread in threads:
        thread.join(max(0.0, end - monotonic()))


def _start(action: Callable[[], object]) -> Thread | None:
    """Do this on a thread of its own; if the system starts no more threads, do it here."""
    thread = Thread(target=_attempt, args=(action,), daemon=True)
    try:
        thread.start()
    except RuntimeError:
        _attempt(action)
        return None
    return thread


def _attempt(action: Callable[[], object]) -> None:
    try:
        action()
    except BaseException:
        pass  # nobody is left who could be told, and other files are to be written all the same
