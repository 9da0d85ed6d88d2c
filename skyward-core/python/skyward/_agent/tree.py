"""Process trees: everything that a worker started, wherever it went."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

_SUBREAPER: Final = 36
_PARENT_DEATH: Final = 1
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_LINUX: Final = sys.platform.startswith("linux")


class Process(NamedTuple):
    """What the process table says of a process."""

    parent: int
    group: int
    state: str
    start: int
    """When it was started, in clock ticks since the boot: a number that is given out again has another."""


def become_subreaper() -> None:
    """Make orphans among the descendants children of this process, instead of init's."""
    if _LINUX:
        _LIBC.prctl(_SUBREAPER, 1, 0, 0, 0)


def die_with(parent: int) -> None:
    """In a new child: be killed when the parent ends, also if it has ended already."""
    if _LINUX:
        _LIBC.prctl(_PARENT_DEATH, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)


def processes() -> dict[int, Process]:
    """All processes that can be seen, by their numbers."""
    if not _LINUX:
        return {}
    listed = ((int(name), process(int(name))) for name in os.listdir("/proc") if name.isdigit())
    return {pid: found for pid, found in listed if found is not None}


def process(pid: int) -> Process | None:
    """The process that has this number now."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            # The command, in parentheses, may itself hold spaces and parentheses.
            fields = file.read(1024).rpartition(b")")[2].split()
    except OSError:
        return None
    return Process(int(fields[1]), int(fields[2]), fields[0].decode(), int(fields[19]))


def descendants(roots: Iterable[int], table: Mapping[int, Process]) -> set[int]:
    """All processes below the roots, without the roots."""
    children: dict[int, list[int]] = {}
    for pid, found_there in table.items():
        children.setdefault(found_there.parent, []).append(pid)
    found: set[int] = set()
    stack = list(roots)
    while stack:
        for child in children.get(stack.pop(), ()):
            if child not in found:
                found.add(child)
                stack.append(child)
    return found


def marked(marks: set[bytes], pids: Iterable[int]) -> set[int]:
    """Those of the processes that were started with one of these `NAME=value` in their environment."""
    found: set[int] = set()
    for pid in pids if marks else ():
        try:
            with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
                if not marks.isdisjoint(file.read(1 << 20).split(b"\0")):
                    found.add(pid)
        except OSError:
            continue
    return found


def alive(pid: int) -> bool:
    """Whether there is such a process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def exited() -> int | None:
    """A child of this process that has ended. It keeps its number until it is waited for."""
    try:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    except ChildProcessError:
        return None
    return ended.si_pid if ended is not None else None


def has_exited(pid: int) -> bool:
    """Whether a child of this process has ended. It keeps its number until it is waited for."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


def kill(pids: Iterable[int], table: Mapping[int, Process]) -> None:
    """SIGKILL to these processes of the table; who is gone already is no error."""
    for pid in pids:
        try:
            _kill(pid, table[pid])
        except OSError:
            pass


def _kill(pid: int, known: Process) -> None:
    """SIGKILL, unless the number has been given to another process since the table was read."""
    try:
        # It stands for one process: whoever has the number when it is compared is the one that is signalled.
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except (AttributeError, OSError):
        descriptor = None  # a system without such descriptors
    try:
        now = process(pid)
        if now is None or now.start != known.start:
            return
        if descriptor is None:
            os.kill(pid, signal.SIGKILL)
        else:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    finally:
        if descriptor is not None:
            os.close(descriptor)


def kill_group(group: int) -> None:
    """SIGKILL to a process group, whose leader must not have been waited for: then its number may be another's."""
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        pass
