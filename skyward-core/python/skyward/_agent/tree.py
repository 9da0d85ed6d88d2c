"""Process trees: all processes that a worker started, also those that left its session or group."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Final, NamedTuple

_SUBREAPER: Final = 36
_PARENT_DEATH: Final = 1
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_LINUX: Final = sys.platform.startswith("linux")


class Process(NamedTuple):
    """An entry of the process table."""

    parent: int
    group: int
    state: str
    start: int
    """Start time in clock ticks since the boot; it differs when the system reuses a process id."""


def become_subreaper() -> None:
    """Make orphaned descendants children of this process instead of init's."""
    if _LINUX:
        _LIBC.prctl(_SUBREAPER, 1, 0, 0, 0)


def die_with(parent: int) -> None:
    """In a new child: be killed when the parent ends, also if it has ended already."""
    if _LINUX:
        _LIBC.prctl(_PARENT_DEATH, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)


def processes() -> dict[int, Process]:
    """Return all visible processes by process id."""
    return look(lambda *_: None)


def look(see: Callable[[int, Process], None]) -> dict[int, Process]:
    """Read the process table.

    Args:
        see: called for each process as soon as it was read, the youngest first: a process that only
            starts another one lives for a moment.

    Returns:
        all visible processes by process id.
    """
    table: dict[int, Process] = {}
    for pid in sorted((int(name) for name in os.listdir("/proc") if name.isdigit()), reverse=True) if _LINUX else ():
        found = process(pid)
        if found is not None:
            table[pid] = found
            see(pid, found)
    return table


def process(pid: int) -> Process | None:
    """Return the process that has this id now, or None."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            # The command, in parentheses, may itself contain spaces and parentheses.
            fields = file.read(1024).rpartition(b")")[2].split()
    except OSError:
        return None
    return Process(int(fields[1]), int(fields[2]), fields[0].decode(), int(fields[19]))


def is_ended_by(pid: int, number: int) -> bool:
    """Return whether this signal would end a process, which neither handles nor ignores it."""
    try:
        with open(f"/proc/{pid}/status", "rb", buffering=0) as file:
            fields = dict(line.partition(b":")[::2] for line in file.read(1 << 16).splitlines())
        return not (int(fields[b"SigCgt"], 16) | int(fields[b"SigIgn"], 16)) >> (number - 1) & 1
    except (OSError, KeyError, ValueError):
        return False


def youngest() -> int | None:
    """Return the id of the process that was started last, which may have ended; None if unknown."""
    try:
        with open("/proc/loadavg", "rb", buffering=0) as file:
            return int(file.read(128).split()[4])
    except (OSError, IndexError, ValueError):
        return None


def descendants(roots: Iterable[int], table: Mapping[int, Process]) -> set[int]:
    """Return all processes below the roots, without the roots."""
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
    """Return the processes whose environment at their start had one of these `NAME=value`.

    Only processes whose real user is that of this process count: root can read the environment of
    all processes, and every user can start processes with any environment.
    """
    found: set[int] = set()
    for pid in pids if marks else ():
        try:
            with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
                is_marked = not marks.isdisjoint(file.read(1 << 20).split(b"\0"))
            if is_marked and _real_user(pid) == os.getuid():
                found.add(pid)
        except OSError:
            continue
    return found


def _real_user(pid: int) -> int | None:
    """Return who has started a process, also where its program runs as another user."""
    with open(f"/proc/{pid}/status", "rb", buffering=0) as file:
        for line in file.read(4096).splitlines():
            if line.startswith(b"Uid:"):
                return int(line.split()[1])
    return None


def is_tracker(pid: int) -> bool:
    """Return whether a process is a resource tracker of `multiprocessing` or of loky.

    A tracker removes the shared memory and files of the processes that have started it when all of
    them have ended, and then ends.
    """
    try:
        with open(f"/proc/{pid}/cmdline", "rb", buffering=0) as file:
            return b"resource_tracker import main" in file.read(1 << 16)
    except OSError:
        return False


def alive(pid: int) -> bool:
    """Return whether a process with this id exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def exited() -> int | None:
    """Return a child that has ended, or None. It keeps its id until it is reaped."""
    try:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    except ChildProcessError:
        return None
    return ended.si_pid if ended is not None else None


def has_exited(pid: int) -> bool:
    """Return whether this child has ended. It keeps its id until it is reaped."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


def send(table: Mapping[int, Process], number: int, apart: Container[int] = ()) -> None:
    """Send a signal to these processes, and to the groups that they lead and that are not kept apart.

    All of a group get it at once, so that none can fork meanwhile. Processes that are gone, or that
    belong to another user and refuse it, are skipped.
    """
    for pid, known in table.items():
        try:
            _send(pid, known, number, known.group == pid and pid > 1 and pid not in apart)
        except OSError:
            pass


def _send(pid: int, known: Process, number: int, to_group: bool) -> None:
    """Send a signal, unless the process id was reused since the table was read."""
    try:
        # The descriptor stands for one process: the process that is compared is the one that gets
        # the signal.
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except (AttributeError, OSError):
        descriptor = None  # the system has no process descriptors
    try:
        now = process(pid)
        if now is None or now.start != known.start:
            return
        if to_group:
            os.killpg(pid, number)
        if descriptor is None:
            os.kill(pid, number)
        else:
            signal.pidfd_send_signal(descriptor, number)
    finally:
        if descriptor is not None:
            os.close(descriptor)


def kill_group(group: int) -> None:
    """Send SIGKILL to a process group.

    Its leader must not have been reaped: the number could already belong to another group.
    """
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        pass
