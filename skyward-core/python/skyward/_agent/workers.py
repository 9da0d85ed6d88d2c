"""All workers of a node: started, named, reaped, and ended together with what they started."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterable, Mapping, Sequence
from time import monotonic
from typing import Any, Final, Protocol

from .._messages import StartSpec
from . import tree
from .memory import OutOfMemory
from .process import StartError, Worker

_ROUNDS: Final = 64
"""How often the process table is searched: who is killed may have forked meanwhile."""
_LAST: Final = 5.0
"""Seconds that the agent spends on its end; what does not end then hangs in the kernel."""


class Refusal(Exception):
    """A request that is answered with an error; the connection goes on."""


class Child(Protocol):
    """A process of the agent's: a worker, or a program beside them."""

    pid: int
    mark: str
    """The `NAME=value` in its environment by which its own children are known."""

    def on_exit(self, status: int) -> None:
        """It was reaped."""


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

    def adopt(self, child: Child) -> None:
        """Reap this process too: it is no worker, and does not end with them."""
        self._others.append(child)

    def named(self, generation: int, indexes: Iterable[int]) -> list[Worker]:
        """Those of these workers that were ever started."""
        found = (self._all.get((generation, index)) for index in indexes)
        return [worker for worker in found if worker is not None]

    def one(self, generation: int, index: int) -> Worker:
        """This worker.

        Raises:
            Refusal: it was never started.
        """
        worker = self._all.get((generation, index))
        if worker is None:
            raise Refusal(f"there is no worker {index} of generation {generation}")
        return worker

    def alive(self) -> list[Worker]:
        """Those that have not ended."""
        return [worker for worker in self._all.values() if worker.ended is None]

    def ended(self) -> list[Worker]:
        """Those of the latest generation that have ended."""
        return [w for w in self._all.values() if w.generation == self.generation and w.ended is not None]

    def start(self, generation: int, indexes: list[int], spec: StartSpec, whole: Mapping[str, Any]) -> list[Worker]:
        """Start workers, all of them or none.

        Raises:
            Refusal: they do not fit what runs, or one cannot be started.
        """
        running = self.alive()
        if generation < self.generation:
            raise Refusal(f"generation {generation} is over; the latest is {self.generation}")
        if old := next((w for w in running if w.generation != generation), None):
            raise Refusal(f"generation {old.generation} still runs; stop it before generation {generation} starts")
        if busy := [w.index for w in running if w.index in indexes]:
            raise Refusal(f"workers {busy} of generation {generation} run already")
        started: list[Worker] = []
        # Not before the first worker: until then the agent may be moved to another control group.
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

    def look_at_memory(self, now: float) -> None:
        """Keep the count of kills for want of memory recent."""
        if self._memory is not None:
            self._memory.look(now)

    def reap(self) -> list[Worker]:
        """Collect processes that have ended; the workers among them. What those have left behind is ended first."""
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

    def _end_trees(self, ended: Sequence[Child]) -> None:
        """Kill what these processes have left behind.

        Nobody may have waited for them yet: that frees their numbers, and those of their groups.
        """
        groups = {child.pid for child in ended}
        for group in groups:
            tree.kill_group(group)
        marks = {child.mark.encode() for child in ended}
        alive = {worker.pid for worker in self.alive()} - groups
        others = {child.pid for child in self._others} - groups
        for _ in range(_ROUNDS):
            table = tree.processes()
            living = alive | others
            below_living = tree.descendants(living, table) | living
            # Whoever left its parent is this process's child now. It belonged to an ended worker by its group or
            # its mark, and in any case when no worker is left to which it could belong.
            strays = tree.descendants([os.getpid()], table) - below_living
            doomed = {p for p, found in table.items() if found.group in groups and p not in below_living}
            doomed |= tree.marked(marks, strays) if alive else strays
            doomed = {p for p in doomed if p in table and table[p].state != "Z"}
            if not doomed:
                return
            tree.kill(doomed, table)
            self._reap_strays()

    def end_all(self) -> None:
        """Kill everything below the agent, and whatever carries this machine's mark."""
        mark = {f"SKYWARD_MACHINE={self._machine}".encode()} if self._machine else set()
        for worker in self.alive():
            worker.signal(signal.SIGKILL)
        until = monotonic() + _LAST
        while monotonic() < until:
            table = tree.processes()
            found = tree.descendants([os.getpid()], table) | tree.marked(mark, table)
            found = {p for p in found if table[p].state != "Z"} - {os.getpid()}
            if not found:
                return
            tree.kill(found, table)
            self._reap_strays()
            select.select((), (), (), 0.002)

    def _reap_strays(self) -> None:
        """Collect orphans that were killed, leaving the ends of workers and other children to `reap`."""
        alive = {child.pid for child in (*self.alive(), *self._others)}
        for pid, found in tree.processes().items():
            if found.parent == os.getpid() and found.state == "Z" and pid not in alive:
                try:
                    os.waitpid(pid, os.WNOHANG)
                except ChildProcessError:
                    pass
