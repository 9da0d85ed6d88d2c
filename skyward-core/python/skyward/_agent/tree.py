"""Process trees: everything that a worker started, wherever it went."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterable
from typing import Final

_SUBREAPER: Final = 36
_PARENT_DEATH: Final = 1
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_LINUX: Final = sys.platform.startswith("linux")


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


def processes() -> dict[int, tuple[int, int, str]]:
    """All processes that can be seen: pid → parent, process group, state."""
    found: dict[int, tuple[int, int, str]] = {}
    if not _LINUX:
        return found
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb", buffering=0) as file:
                # The command, in parentheses, may itself hold spaces and parentheses.
                fields = file.read(1024).rpartition(b")")[2].split()
        except OSError:
            continue
        found[int(name)] = (int(fields[1]), int(fields[2]), fields[0].decode())
    return found


def descendants(roots: Iterable[int], table: dict[int, tuple[int, int, str]]) -> set[int]:
    """All processes below the roots, without the roots."""
    children: dict[int, list[int]] = {}
    for pid, (parent, _, _) in table.items():
        children.setdefault(parent, []).append(pid)
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


def kill(pids: Iterable[int]) -> None:
    """SIGKILL; who is gone already is no error."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass


def kill_group(group: int) -> None:
    """SIGKILL to a process group."""
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        pass
