"""All workers of a node: the agent starts, looks up and reaps them, and ends what they started."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Mapping, Sequence
from time import monotonic, sleep
from typing import Any, Final, Protocol

from .._core.messages import StartSpec
from . import tree
from .ending import end
from .log import log
from .memory import OutOfMemory
from .process import StartError, Worker

_REMAINS: Final = 1.0
"""Seconds that the agent spends on ending what a child has left behind."""
_LAST: Final = 10.0
"""Seconds that the agent spends on ending its processes; a process that lives longer hangs in the
kernel, belongs to another user, or starts others too fast.
"""
_TRACKING: Final = 1.0
"""The most seconds that a resource tracker gets to remove what it holds, once its worker has ended."""
_PAUSE: Final = 0.002
_SHOWN: Final = 20
"""The most processes that a line of the log names."""


class Refusal(Exception):
    """The agent answers a request with an error; the connection stays open."""


class Child(Protocol):
    """A child process of the agent: a worker, or a program that runs beside the workers."""

    pid: int
    mark: str
    """The `NAME=value` in its environment by which the agent recognises its children."""

    def on_exit(self, status: int) -> None:
        """Handle the end of the process, after it was reaped."""


class Workers:
    """The workers of this agent, by generation and index."""

    def __init__(self, folder: str, machine: str) -> None:
        self.generation = 0
        self._memory: OutOfMemory | None = None
        self._folder = folder
        self._machine = machine
        self._environment = dict(os.environ)
        self._all: dict[tuple[int, int], Worker] = {}
        self._others: list[Child] = []
        self._trackers: dict[int, tuple[tree.Process, float]] = {}
        """Resource trackers that are removing what they hold, by process id, and until when they
        may.
        """

    def adopt(self, child: Child) -> None:
        """Reap this process too, although it is no worker and does not end with the workers."""
        self._others.append(child)

    def named(self, generation: int, indexes: Iterable[int]) -> list[Worker]:
        """Return those of the given workers that were ever started."""
        found = (self._all.get((generation, index)) for index in indexes)
        return [worker for worker in found if worker is not None]

    def one(self, generation: int, index: int) -> Worker:
        """Return one worker.

        Raises:
            Refusal: the worker was never started.
        """
        worker = self._all.get((generation, index))
        if worker is None:
            raise Refusal(f"there is no worker {index} of generation {generation}")
        return worker

    def alive(self) -> list[Worker]:
        """Return the workers that have not ended."""
        return [worker for worker in self._all.values() if worker.ended is None]

    def ended(self) -> list[Worker]:
        """Return the workers of the latest generation that have ended."""
        return [w for w in self._all.values() if w.generation == self.generation and w.ended is not None]

    def start(self, generation: int, indexes: list[int], spec: StartSpec, whole: Mapping[str, Any]) -> list[Worker]:
        """Start workers: all of them or none.

        Raises:
            Refusal: they do not fit what runs already, or one of them cannot be started.
        """
        running = self.alive()
        if generation < self.generation:
            raise Refusal(f"generation {generation} is over; the latest is {self.generation}")
        if old := next((w for w in running if w.generation != generation), None):
            raise Refusal(f"generation {old.generation} still runs; stop it before you start generation {generation}")
        if busy := [w.index for w in running if w.index in indexes]:
            raise Refusal(f"workers {busy} of generation {generation} already run")
        started: list[Worker] = []
        # Create it with the first worker: until then the agent may be moved to another control
        # group.
        self._memory = self._memory or OutOfMemory()
        for index in indexes:
            worker = Worker(self._folder, generation, index, self._memory)
            try:
                worker.start(spec, whole, self._environment)
            except StartError as error:
                for other in started:
                    other.signal(signal.SIGKILL)
                raise Refusal(str(error)) from None
            started.append(worker)
            self._all[generation, index] = worker
        self.generation = generation
        return started

    def give_back(self) -> None:
        """Give the disk back what need not stay of the output."""
        for worker in self.alive():
            for spool in worker.spools:
                spool.give_back()

    def look_at_memory(self, now: float) -> None:
        """Update the count of processes that the kernel killed because memory ran out."""
        if self._memory is not None:
            self._memory.look(now)

    def reap(self) -> list[Worker]:
        """Reap ended children after killing their remains; return the workers among them."""
        found: list[Worker] = []
        while (pid := tree.exited()) is not None:
            known: list[Child] = [*self.alive(), *self._others]
            if all(child.pid != pid for child in known):
                os.waitpid(pid, os.WNOHANG)
                continue
            ended = [child for child in known if tree.has_exited(child.pid)]
            self._end_trees(ended)
            self._others = [child for child in self._others if child not in ended]
            for child in ended:
                child.on_exit(os.waitpid(child.pid, 0)[1])
            found += [child for child in ended if isinstance(child, Worker)]
        return found

    def due(self) -> float | None:
        """Return when `end_trackers` has something to do next."""
        return min((until for _, until in self._trackers.values()), default=None)

    def end_trackers(self, now: float) -> None:
        """Kill the resource trackers whose time is over."""
        for pid, (known, until) in list(self._trackers.items()):
            if now >= until:
                tree.send({pid: known}, signal.SIGKILL)
                del self._trackers[pid]

    def _end_trees(self, ended: Sequence[Child]) -> None:
        """Kill the processes that these children have left behind, but resource trackers only later.

        The children must not have been reaped yet: reaping frees their process ids and group ids.
        """
        groups = {child.pid for child in ended}
        self._kill_groups(groups)
        marks = {child.mark.encode() for child in ended}
        alive = {worker.pid for worker in self.alive()} - groups
        others = {child.pid for child in self._others} - groups
        living = alive | others

        def left_behind(table: Mapping[int, tree.Process]) -> set[int]:
            below_living = tree.descendants(living, table) | living
            # A process whose parent has ended is a child of the agent now. It belonged to an ended
            # worker if its group or mark says so, and in any case if no worker is alive to which it
            # could belong.
            strays = tree.descendants([os.getpid()], table) - below_living
            doomed = {p for p, found in table.items() if found.group in groups and p not in below_living}
            return doomed | (tree.marked(marks, strays) if alive else strays)

        self._report(end(left_behind, _REMAINS, self._reap_strays, self._has_time), _REMAINS)

    def _kill_groups(self, groups: set[int]) -> None:
        """Kill groups as a whole, so that no process of them can fork meanwhile, but those with a tracker."""
        table = tree.processes()
        apart = {found.group for pid, found in table.items() if found.group in groups and self._has_time(pid, found)}
        for group in groups - apart:
            tree.kill_group(group)

    def _has_time(self, pid: int, found: tree.Process) -> bool:
        """Return whether a process is a resource tracker that may go on for a while."""
        known, until = self._trackers.get(pid, (None, 0.0))
        if known is None or known.start != found.start:
            if not tree.is_tracker(pid):
                return False
            until = monotonic() + _TRACKING
            self._trackers[pid] = (found, until)
        return monotonic() < until

    def end_all(self) -> None:
        """Kill all processes below the agent, and all that carry this machine's mark."""
        mark = {f"SKYWARD_MACHINE={self._machine}".encode()} if self._machine else set()
        alive = self.alive()
        for worker in alive:
            worker.is_killed = True
        self._kill_groups({worker.pid for worker in alive})

        def all_of_machine(table: Mapping[int, tree.Process]) -> set[int]:
            return (tree.descendants([os.getpid()], table) | tree.marked(mark, table)) - {os.getpid()}

        end(all_of_machine, _LAST, self._reap_strays, self._has_time)
        until = self.due()
        while until is not None and monotonic() < until and self._are_tracking():
            sleep(_PAUSE)
            self._reap_strays()
        self._report(end(all_of_machine, _LAST, self._reap_strays), _LAST)

    def _are_tracking(self) -> bool:
        """Return whether a resource tracker still lives."""
        now = ((known, tree.process(pid)) for pid, (known, _) in self._trackers.items())
        return any(found is not None and found.start == known.start and found.state != "Z" for known, found in now)

    @staticmethod
    def _report(left: set[int], seconds: float) -> None:
        if left:
            shown = " ".join(map(str, sorted(left)[:_SHOWN]))
            log(f"{len(left)} processes did not end within {seconds:g} s of SIGKILL: {shown}")

    def _reap_strays(self) -> bool:
        """Reap orphans, and return whether there was one; `reap` handles the ends of workers and other children."""
        alive = {child.pid for child in (*self.alive(), *self._others)}
        has_ended = False
        for pid, found in tree.processes().items():
            if found.parent == os.getpid() and found.state == "Z" and pid not in alive:
                try:
                    os.waitpid(pid, os.WNOHANG)
                    has_ended = True
                except ChildProcessError:
                    pass
        return has_ended
