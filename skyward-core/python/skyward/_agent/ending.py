"""The end of processes, however fast they start others."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from time import monotonic, sleep
from typing import Final

from . import tree

Find = Callable[[Mapping[int, tree.Process]], set[int]]
"""Returns the processes to end of a part of the process table: of one process, and then of all."""

Spare = Callable[[int, tree.Process], bool]
"""Returns whether one of the processes to end may go on."""

_PAUSE: Final = 0.002
_CHASED: Final = 300
"""How many processes are read in a chase."""


def end(find: Find, seconds: float, reap: Callable[[], bool], spare: Spare = lambda pid, found: False) -> set[int]:
    """End processes, until two looks in a row find none but spared ones.

    The first look stops the processes, so that they start no others and still take their places
    within limits. What later looks find was started meanwhile, and is killed at once: a process that
    is killed while it forks has no child. The stopped ones are killed when a look finds nothing
    else.

    Args:
        find: the processes to end.
        seconds: how long to try.
        reap: reaps what has ended, and returns whether there was anything. What has ended may have
            started another process, also if no look has seen it.
        spare: whether a process may go on; the others of its group are ended one by one.

    Returns:
        the processes that live when the time is up.
    """
    until = monotonic() + seconds
    look = _Look(find, spare, signal.SIGSTOP, {})
    stopped = look.new
    clean = 0
    while True:
        is_late = monotonic() >= until
        if look.left and (not look.new or is_late):
            tree.send(look.left, signal.SIGKILL, look.apart)
        has_ended = reap()
        if is_late and (look.left or has_ended):
            return set(look.left)
        if has_ended and not look.left:
            _chase(find, reap)
        clean = 0 if look.left or look.new or has_ended else clean + 1
        if clean == 2:
            return set()
        if not look.new:
            sleep(_PAUSE)
        look = _Look(find, spare, signal.SIGKILL, stopped)


def _chase(find: Find, reap: Callable[[], bool]) -> None:
    """Kill the youngest process again and again, if it is to end.

    No look finds a process that only starts the next one and ends.
    """
    for turn in range(_CHASED):
        pid = tree.youngest()
        found = tree.process(pid) if pid is not None else None
        if pid is None:
            break
        if found is not None and found.state not in "ZX" and find({pid: found}):
            tree.send({pid: found}, signal.SIGKILL)
        if turn % 50 == 49:
            reap()


class _Look:
    """One reading of the process table, which sends a signal to what it finds new."""

    def __init__(self, find: Find, spare: Spare, number: int, stopped: Mapping[int, int]) -> None:
        self._number = number
        self._stopped = stopped
        self.new: dict[int, int] = {}
        """The start times of the processes that got the signal."""
        self.apart: set[int] = set()
        """The groups that must not get a signal as a whole."""

        def is_spared(pid: int, found: tree.Process) -> bool:
            if not spare(pid, found):
                return False
            self.apart.add(found.group)
            return True

        def see(pid: int, found: tree.Process) -> None:
            if find({pid: found}) and not is_spared(pid, found):
                self._strike(pid, found)

        table = tree.look(see)
        doomed = ((pid, table[pid]) for pid in sorted(find(table), reverse=True))
        self.left = {pid: found for pid, found in doomed if found.state not in "ZX" and not is_spared(pid, found)}
        """All processes to end."""
        for pid, found in self.left.items():
            self._strike(pid, found)

    def _strike(self, pid: int, found: tree.Process) -> None:
        if found.state not in "ZX" and pid not in self.new and self._stopped.get(pid) != found.start:
            self.new[pid] = found.start
            tree.send({pid: found}, self._number, self.apart)
