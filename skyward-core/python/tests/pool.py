"""A simple client that schedules calls like the Rust side, for tests of the Python side."""

from __future__ import annotations

import select
from time import monotonic
from typing import Any

import msgspec

from skyward._core import wire

from .client import DEADLINE, CallsClient, WorkerClient, start_spec
from .conftest import Node

Caller = tuple[int, int, int]
"""A place: worker, run and helped call."""


class Call:
    """A call that a worker has submitted."""

    def __init__(self, caller: Caller, number: int, depth: int, body: bytes, options: Any) -> None:
        self.caller, self.number, self.depth, self.body, self.options = caller, number, depth, body, options
        self.place: Caller | None = None
        """The place that runs it."""
        self.aside = False


class Pool:
    """The workers of one node. Calls run on a free worker, or within a waiting caller."""

    def __init__(
        self, node: Node, workers: int, payload: str | dict[str, str], main: str = "job.py", **spec: Any
    ) -> None:
        self.node = node
        self.helps_waiting = True
        """Whether main threads that wait for calls run calls."""
        self.aside_after = 0.1
        """Seconds without progress after which a call runs on another thread of its caller's
        worker.
        """
        self.workers: list[WorkerClient] = []
        self.calls: list[CallsClient | None] = [None] * workers
        self.queued: list[Call] = []
        self.running: dict[Caller, Call | None] = {}
        """What each place runs; None for a task that the test started."""
        self.waiting: list[list[Caller]] = [[] for _ in range(workers)]
        self.outcomes: dict[Caller, tuple[list[Any], bytes]] = {}
        self.counts = {"run": 0, "help": 0, "aside": 0, "refused": 0}
        self.payload = 1
        """The number of the payload to which calls belong."""
        self.items: list[Any] = []
        self.last_failure: Any = None
        self._interrupted: dict[Caller, float] = {}
        """When each place was interrupted last."""
        self._help = 0
        self._moved = monotonic()
        started = node.agent.start(start_spec(workers=workers, **spec), list(range(workers)))
        node.started = started
        for _, _, path in started:
            client = WorkerClient(path)
            client.hello()
            client.load(1, payload, main=main)
            client.gang = None
            self.workers.append(client)

    def start(self, worker: int, **arguments: Any) -> Caller:
        """Start a task on a worker."""
        run = self.workers[worker].start(1, **arguments)
        self.running[worker, run, 0] = None
        return worker, run, 0

    def outcome(self, task: Caller, deadline: float = DEADLINE) -> tuple[bool, Any]:
        """Schedule until the task has ended; return whether it succeeded, and its value or failure."""
        end = monotonic() + deadline
        while task not in self.outcomes:
            assert monotonic() < end, (self.counts, self.running, self.waiting, self.queued)
            self.step()
        head, body = self.outcomes[task]
        return head[0] == wire.RESULT, msgspec.msgpack.decode(body)

    def call(self, worker: int = 0, **arguments: Any) -> Any:
        """Return the value of a task that succeeds."""
        ok, value = self.outcome(self.start(worker, **arguments))
        assert ok, value
        return value

    def failure(self, worker: int = 0, **arguments: Any) -> Any:
        """Return the failure map of a task that fails."""
        ok, value = self.outcome(self.start(worker, **arguments))
        assert not ok, value
        return value

    def settle(self) -> None:
        """Schedule until nothing is left."""
        end = monotonic() + DEADLINE
        while self.running or self.queued:
            assert monotonic() < end, (self.counts, self.running, self.waiting, self.queued)
            self.step()

    def step(self, seconds: float = 0.02) -> None:
        """Read messages, and place waiting calls."""
        sources: dict[Any, Any] = {self.node.agent.socket: self._from_agent}
        for index, client in enumerate(self.workers):
            sources[client.socket] = lambda index=index: self._from_worker(index)
        for index, calls in enumerate(self.calls):
            if calls is not None and calls.frames is not None:
                sources[calls.frames.socket] = lambda index=index: self._from_calls(index)
        for source in select.select(list(sources), [], [], seconds)[0]:
            sources[source]()
        for place, last in [*self._interrupted.items()]:
            if place not in self.running:
                del self._interrupted[place]
            elif monotonic() - last > 0.1:
                self.interrupt(place)
        self._place()

    def _from_agent(self) -> None:
        head, _ = self.node.agent.receive()
        if head[0] == wire.CALLS:
            self.calls[head[2]] = CallsClient(head[4])

    def _from_worker(self, index: int) -> None:
        while not self.workers[index].quiet(0):
            self._take(index, *self.workers[index].receive())

    def _take(self, index: int, head: list[Any], body: bytes) -> None:
        if head[0] == wire.ITEM:
            self.items.append(msgspec.msgpack.decode(body))
        if head[0] not in (wire.RESULT, wire.FAILURE):
            return
        if head[0] == wire.FAILURE:
            self.last_failure = msgspec.msgpack.decode(body)
        self.workers[index].acknowledged = head[1]
        place = (index, head[2], 0)
        self.outcomes[place] = (head, body)
        self._ended(place, head[0] == wire.RESULT, body, head[5])

    def _from_calls(self, index: int) -> None:
        calls = self.calls[index]
        assert calls is not None
        self._read(calls)
        while calls.unread:
            head, body = calls.unread.pop(0)
            self._moved = monotonic()
            if head[0] == wire.SUBMIT:
                self._submitted(index, head, body)
            elif head[0] == wire.WAIT:
                self.waiting[index].append((index, head[2], head[3]))
            elif head[0] == wire.WAITED:
                self.waiting[index].pop()
            elif head[0] == wire.REFUSE:
                self.counts["refused"] += 1
                self._refused(index, head[2])
            elif head[0] in (wire.HELPED, wire.HELP_FAILED):
                place = next((p for p in self.running if p[0] == index and p[2] == head[2]), None)
                if place is not None:
                    self._ended(place, head[0] == wire.HELPED, body, head[3])
            elif head[0] == wire.DROP:
                self._cancel([c for c in self._all() if c.caller[0] == index and c.number == head[2]])

    def _refused(self, index: int, help: int) -> None:
        """Queue a call again that a worker refused, unless it was cancelled in the meantime."""
        call = self._take_helped(index, help)
        if call is None:
            return
        cancelled = call.place in self._interrupted
        call.place = None
        self.queued.append(call)
        if cancelled:
            self._cancel([call])

    def _read(self, calls: CallsClient) -> None:
        """Receive one message of a worker."""
        calls.read()

    def _submitted(self, index: int, head: list[Any], body: bytes) -> None:
        caller = (index, head[3], head[4])
        above = self.running.get(caller)
        depth = 0 if above is None else above.depth
        call = Call(caller, head[2], depth + 1, body, head[5])
        if caller in self.running:
            self.queued.append(call)
        else:
            self._answer(call, False, msgspec.msgpack.encode({"kind": "cancelled", "message": "its caller is over"}), 0)

    def _all(self) -> list[Call]:
        return [*self.queued, *(call for call in self.running.values() if call is not None)]

    def _ended(self, place: Caller, ok: bool, body: bytes, micros: int) -> None:
        self._moved = monotonic()
        call = self.running.pop(place)
        # No call may outlive its caller.
        self._cancel([below for below in self._all() if below.caller == place])
        if call is not None:
            self._answer(call, ok, body, micros)

    def _answer(self, call: Call, ok: bool, body: bytes, micros: int) -> None:
        calls = self.calls[call.caller[0]]
        assert calls is not None
        calls.send(wire.OUTCOME, call.number, ok, micros, body=body)

    def _cancel(self, doomed: list[Call]) -> None:
        for call in doomed:
            if call in self.queued:
                self.queued.remove(call)
                self._answer(call, False, msgspec.msgpack.encode({"kind": "cancelled", "message": "given up"}), 0)
            elif call.place is not None:
                self.interrupt(call.place)

    def interrupt(self, place: Caller) -> None:
        """Cancel what a place runs; `step` repeats the interrupt until it has ended."""
        self._interrupted[place] = monotonic()
        index, run, help = place
        if help:
            calls = self.calls[index]
            assert calls is not None
            calls.send(wire.CANCEL_HELP, help)
        else:
            self.workers[index].send([wire.CANCEL, run])
            self.node.agent.send([wire.SIGNAL, 1, index, "interrupt"])

    def _take_helped(self, index: int, help: int) -> Call | None:
        place = next((place for place in self.running if place[0] == index and place[2] == help), None)
        return None if place is None else self.running.pop(place)

    def _place(self) -> None:
        for call in [*self.queued]:
            place = self._free() or (self._waiting_above(call) if self.helps_waiting else None)
            aside = place is None and monotonic() - self._moved > self.aside_after
            if aside:
                place = (*call.caller[:2], 1)
            if place is not None:
                self.queued.remove(call)
                self._run(call, place, aside)

    def _run(self, call: Call, place: Caller, aside: bool) -> None:
        self._moved = monotonic()
        index, run, help = place
        if not help:
            self.counts["run"] += 1
            worker = self.workers[index]
            worker.task = run
            worker.send([wire.RUN, run, self.payload, worker.acknowledged, 0, None, None, call.depth], call.body)
        else:
            self._help += 1
            help = self._help
            within = 0 if aside else max(place[2] for place in self._on_main(index))
            self.counts["aside" if aside else "help"] += 1
            calls = self.calls[index]
            assert calls is not None
            calls.send(wire.HELP, help, run, within, call.depth, aside, body=call.body)
        call.place, call.aside = (index, run, help), aside
        self.running[call.place] = call

    def _free(self) -> Caller | None:
        busy = {place[0] for place in self.running}
        for index, worker in enumerate(self.workers):
            if index not in busy:
                return index, worker.task + 1, 0
        return None

    def _waiting_above(self, call: Call) -> Caller | None:
        """Return the nearest caller above whose main thread waits, in its innermost frame."""
        above: Caller | None = call.caller
        while above is not None:
            stack = self.waiting[above[0]]
            innermost = max((p for p in self._on_main(above[0])), key=lambda place: place[2], default=None)
            if stack and stack[-1] == above == innermost:
                return (*above[:2], 1)
            ran = self.running.get(above)
            above = None if ran is None else ran.caller
        return None

    def _on_main(self, index: int) -> list[Caller]:
        return [p for p, call in self.running.items() if p[0] == index and not (call is not None and call.aside)]
