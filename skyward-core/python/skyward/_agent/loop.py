"""The agent's loop: one thread that serves the client, workers, lease and output."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable
from time import monotonic, sleep
from typing import Any, Final

import msgspec

from .._core import wire
from .._core.descriptors import NO_ROOM, PAUSE
from .._core.messages import (
    Hello,
    Logs,
    Mover,
    Ping,
    Recall,
    ReservePort,
    Shutdown,
    Signal,
    Start,
    StartSpec,
    Stop,
    ToAgent,
    Watch,
)
from . import tree, uptime
from .client import Connection
from .installed import installed
from .last_words import last_words
from .log import log
from .logs import Tails
from .mover import Mover as MoverProgram
from .port import reserve
from .process import WAKE, Worker
from .stacks import Stacks
from .watch import Watch as WatchCommand
from .workers import Refusal, Workers

_SIGNALS: Final = {"interrupt": signal.SIGINT, "kill": signal.SIGKILL}
_STACKS: Final = "stacks"
_ATTEND: Final = "attend"
_decode_spec: Final = msgspec.msgpack.Decoder(StartSpec).decode
_LONGEST_WAIT: Final = 3600.0
"""The longest wait of one `poll`, in seconds; it counts milliseconds in 31 bits, about 24 days."""
_INDEX: Final = struct.Struct("<I")
_GIVE_BACK: Final = 1.0
"""Seconds between two looks at how much output is on the disk, whether a client takes it or not."""
_PORTS: Final = 64
"""How many ports the agent holds at most, also those of generations that have ended."""
_FAREWELL: Final = 5.0
"""Seconds that a client may take to receive each piece of what is sent before `AGENT_BYE`."""


class Agent:
    """Supervises the workers of one node for one pool."""

    def __init__(
        self, folder: str, address: str, lease: float, listener: socket.socket, machine: str, path: list[str]
    ) -> None:
        self.address = address
        self.lease = lease
        self.deadline = monotonic() + lease
        self.workers = Workers(folder, machine)
        self.pool: str | None = None
        self.why_ended = ""
        self._kept = True
        """Whether the machine's folder, which is the working folder, may hold a keeper's lease
        file.
        """
        self._owner: int | None = None
        """The owner's process, on systems where the agent has to poll for its end."""
        self._path = path
        """The folders from which workers import."""
        self._listener = listener
        self._client: Connection | None = None
        self._strangers: dict[int, Connection] = {}
        """Connections that have not sent `Hello` yet."""
        self._tails = Tails()
        self._stacks = Stacks()
        self._log_at: float | None = None
        self._give_back_at = monotonic()
        self._stops: list[tuple[float, int | None, int, list[int]]] = []
        """Each stop that is not done: deadline, request number if any, generation and workers."""
        self._farewell: tuple[float, int] | None = None
        """Deadline and request number of a `Shutdown`."""
        self._ports: deque[socket.socket] = deque()
        """The ports that are held for worlds, the latest last. Ranks of an earlier generation may
        still run on a node that the client does not reach, and connect to theirs.
        """
        self._poll = select.poll()
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._handle(listener.fileno(), self._accept)
        self._watch = WatchCommand(self._handle, self._forget, self.workers.adopt, dict(os.environ))
        self._mover = MoverProgram(folder, self.workers.adopt, dict(os.environ))
        self._watching: Connection | None = None
        """The client that has sent the watch command, if any."""
        self._watch_children()
        self._watch_tasks(f"{folder}/{WAKE}")

    def watch_owner(self, pid: int) -> None:
        """End the agent when this process ends."""
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            self._owner_gone(pid)
        except (AttributeError, OSError):
            self._owner = pid  # the system has no process descriptors
        else:
            self._handle(descriptor, lambda _: self._owner_gone(pid))

    def run(self) -> str:
        """Serve until a reason to end occurs, and return that reason."""
        while not self.why_ended:
            for descriptor, event in self._poll.poll(self._timeout()):
                handler = self._handlers.get(descriptor)
                if handler is not None:
                    handler(event)
            self._tick()
        # Without a `Shutdown` the node is lost: no worker has ended by itself, so the client gets
        # no `EXITED`.
        self._client = None
        self._end_all()
        return self.why_ended

    # Time

    def _timeout(self) -> float:
        """Return the milliseconds until something is due."""
        due = [self.deadline, *(stop[0] for stop in self._stops)]
        if self._owner is not None:
            due.append(monotonic() + 1.0)
        if self.workers.alive():
            due.append(self._give_back_at)
        due += [at for at in (self._stacks.due(), self._watch.due(), self.workers.due()) if at is not None]
        if self._client is not None:
            wait = self._tails.wait(self._client)
            now = monotonic()
            if wait is None:
                self._log_at = None
            else:
                self._log_at = min(self._log_at or now + wait, now + wait)
                due.append(self._log_at)
        return min(max(0.0, min(due) - monotonic()), _LONGEST_WAIT) * 1000 + 0.5

    def _tick(self) -> None:
        now = monotonic()
        self.workers.look_at_memory(now)
        self.workers.end_trackers(now)
        if now >= self._give_back_at:
            self._give_back_at = now + _GIVE_BACK
            self.workers.give_back()
        if now >= self.deadline:
            self.why_ended = f"the lease expired: the client sent nothing for {self.lease:g} s"
            return
        if self._owner is not None and not tree.alive(self._owner):
            self._owner_gone(self._owner)
            return
        for asked, stacks in self._stacks.take(now):
            self._tell([wire.STACKS, asked.generation, asked.index], stacks)
        self._watch.tick(now)
        self._send_notices(now)
        for stop in list(self._stops):
            _, request, generation, indexes = stop
            alive = [w for w in self.workers.named(generation, indexes) if w.ended is None]
            if not alive:
                self._stops.remove(stop)
                if request is not None:
                    self._tell([wire.STOPPED, request, generation, indexes])
            elif now >= stop[0]:
                for worker in alive:
                    worker.signal(signal.SIGKILL)
                # Killed workers end within moments; a worker that does not hangs in the kernel.
                self._stops[self._stops.index(stop)] = (now + 1.0, request, generation, indexes)
        if self._farewell is not None and not self._stops:
            self._say_bye(self._farewell[1])
        if self._log_at is not None and now >= self._log_at and self._client is not None:
            self._log_at = None
            self._guard(self._client, self._advance_logs)

    def _send_notices(self, now: float) -> None:
        """Send the notices of the watch command, as far as the client accepts output."""
        client = self._client
        if client is not None and client is self._watching and client.may_log:
            for given in self._watch.take():
                self._tell(given.head(wire.AGENT_NOTICE, now))

    def _watch_tasks(self, path: str) -> None:
        """Send a task's output when the task has ended; its worker reports that by a named pipe."""
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            os.mkfifo(path, 0o600)
            # Open it for reading and writing, so that it never reaches its end when no worker has
            # it open.
            wake = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            log(f"the pipe by which workers report output cannot be made, so output is sent later: {error}")
            return

        def send(event: int) -> None:
            said = os.read(wake, 4096)
            for index in {index for (index,) in _INDEX.iter_unpack(said[: len(said) // 4 * 4])}:
                if index & wire.CALLS_ASKED:
                    self._ask_for_calls(index ^ wire.CALLS_ASKED)
                else:
                    self._send_output(self.workers.generation, index)

        self._handle(wake, send)

    def _send_output(self, generation: int, index: int) -> None:
        client = self._client
        if client is not None:
            self._guard(client, lambda: self._tails.send(generation, index, client))

    def _ask_for_calls(self, index: int) -> None:
        """Ask the client to connect to a worker whose payload submits calls."""
        for worker in self.workers.named(self.workers.generation, [index]):
            if worker.ended is None:
                worker.has_calls = True
                self._tell(self._calls(worker))

    def _advance_logs(self) -> None:
        if self._client is not None:
            self._tails.advance(self._client)

    # Sockets

    def _handle(self, descriptor: int, handler: Callable[[int], None], events: int = select.POLLIN) -> None:
        self._handlers[descriptor] = handler
        self._poll.register(descriptor, events)

    def _forget(self, descriptor: int) -> None:
        if self._handlers.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)

    def _accept(self, event: int) -> None:
        try:
            opened, _ = self._listener.accept()
        except OSError as error:
            if error.errno in NO_ROOM:
                # The listener stays readable until a descriptor is free.
                sleep(PAUSE)
            return
        connection = Connection(opened)
        if len(self._strangers) >= 16:
            self._close(next(iter(self._strangers.values())))
        self._strangers[connection.fileno()] = connection
        self._handle(connection.fileno(), lambda event: self._on_connection(connection, event))

    def _on_connection(self, connection: Connection, event: int) -> None:
        def attend() -> None:
            if event & select.POLLOUT:
                connection.flush()
            if event & (select.POLLIN | select.POLLHUP | select.POLLERR) and connection.may_read:
                self._read(connection)

        self._guard(connection, attend)

    def _guard(self, connection: Connection, action: Callable[[], None]) -> None:
        """Act on a connection. An error closes the connection and never ends the agent."""
        try:
            action()
            if connection.closing and not connection.wants_write:
                raise ConnectionAbortedError
            if connection.fileno() >= 0:
                self._await_events(connection)
        except wire.ProtocolError as error:
            self._refuse_and_close(connection, error.number, str(error))
        except OSError:
            self._close(connection)

    def _await_events(self, connection: Connection) -> None:
        events = (select.POLLIN if connection.may_read else 0) | (select.POLLOUT if connection.wants_write else 0)
        self._poll.modify(connection.fileno(), events)

    def _refuse_and_close(self, connection: Connection, number: int, text: str) -> None:
        log(f"a client was refused: {text}")
        connection.closing = True
        try:
            connection.send([wire.ERROR, number, text])
            if connection.wants_write:
                self._await_events(connection)
                return
        except OSError:
            pass
        self._close(connection)

    def _close(self, connection: Connection) -> None:
        if connection.fileno() < 0:
            return
        self._strangers.pop(connection.fileno(), None)
        self._forget(connection.fileno())
        connection.close()
        if connection is self._client:
            self._client = self._watching = None
            self._tails.close()
            self._tails = Tails()
            self._log_at = None

    def _tell(self, head: list[Any], body: bytes = b"") -> None:
        """Send a frame to the client, if there is one."""
        client = self._client
        if client is not None:
            self._guard(client, lambda: client.send(head, body))

    # Requests

    def _read(self, connection: Connection) -> None:
        try:
            count = connection.reader.fill(connection.socket)
        except BlockingIOError:
            return
        if count == 0:
            raise ConnectionAbortedError
        for message, body, _ in connection.reader.frames():
            number: int = message.__struct_config__.tag
            try:
                self._request(connection, message, number, body)
            except Refusal as refusal:
                connection.send([wire.ERROR, number, str(refusal), getattr(message, "request", 0)])
            except wire.UNREADABLE as error:
                raise wire.ProtocolError(f"the body of message {number} cannot be decoded: {error}", number) from None
            if connection.fileno() < 0:
                return

    def _request(self, connection: Connection, message: ToAgent, number: int, body: memoryview) -> None:
        if type(message) is Hello:
            self._greet(connection, message)
            return
        if connection is not self._client:
            raise wire.ProtocolError("the first message must be Hello", number)
        if type(message) is Ping:
            self.lease = message.lease
            self._tell_keeper()
        self._renew()
        if type(message) is Ping:
            connection.send([wire.PONG, message.sequence])
        elif type(message) is Start:
            self._start(message, body)
        elif type(message) is ReservePort:
            self._reserve_port(message.request)
        elif type(message) is Recall:
            self._recall(message)
        elif type(message) is Signal:
            self._signal(message)
        elif type(message) is Stop:
            self._stop(message.request, message.generation, message.workers, message.grace)
        elif type(message) is Logs:
            self._follow(message)
        elif type(message) is Watch:
            self._watch_machine(connection, message.command)
        elif type(message) is Mover:
            connection.send(self._mover.answer(message.request, self.pool or ""))
        elif type(message) is Shutdown:
            self._shut_down(message.request, message.grace)

    def _renew(self) -> None:
        self.deadline = monotonic() + self.lease

    def _tell_keeper(self) -> None:
        """Renew the lease file of the machine's keeper, if there is one."""
        if self._kept:
            try:
                uptime.touch("lease")
            except OSError as error:
                # If the file is gone, the keeper has ended the machine; otherwise the next renewal
                # may succeed.
                self._kept = not isinstance(error, FileNotFoundError)

    def _greet(self, connection: Connection, hello: Hello) -> None:
        if hello.version != wire.PROTOCOL:
            raise wire.ProtocolError(wire.other_version(hello.version), wire.HELLO)
        if self.pool is not None and hello.pool != self.pool:
            raise wire.ProtocolError(f"this agent belongs to pool {self.pool}, not {hello.pool}", wire.HELLO)
        self.pool = hello.pool
        self._renew()
        if self._client is not None and self._client is not connection:
            self._close(self._client)
        self._strangers.pop(connection.fileno(), None)
        self._client = connection
        connection.greeted = True
        python = ".".join(map(str, sys.version_info[:3]))
        body = msgspec.msgpack.encode(installed(self._path))
        connection.send([wire.AGENT_HELLO, wire.PROTOCOL, os.getpid(), python, _boot_facts()], body)
        for worker in self.workers.ended():
            connection.send(self._exited(worker), last_words(worker))
        for worker in self.workers.alive():
            if worker.has_calls:
                connection.send(self._calls(worker))

    def _start(self, start: Start, body: memoryview) -> None:
        generation, indexes = start.generation, start.workers
        spec, whole = _decode_spec(body), msgspec.msgpack.decode(body)
        whole["secrets"] = list(spec.secrets)
        if spec.secrets:
            # Clear the receive buffer, which lives as long as the connection; the spec is freed on
            # return.
            body[:] = bytes(len(body))
            _leave_no_core()
        started = self.workers.start(generation, indexes, spec, whole)
        for worker in started:
            self._tails.follow(worker)
        self._tell([wire.STARTED, start.request, generation, [[w.index, w.pid, w.socket_path] for w in started]])

    def _reserve_port(self, request: int) -> None:
        if len(self._ports) == _PORTS:
            self._ports.popleft().close()
        try:
            reserved = reserve(self.address)
        except OSError as error:
            raise Refusal(f"cannot reserve a port on {self.address}: {error.strerror}") from None
        self._ports.append(reserved)
        self._tell([wire.PORT, request, self.address, reserved.getsockname()[1]])

    def _signal(self, signal: Signal) -> None:
        worker = self.workers.one(signal.generation, signal.worker)
        if signal.name == _STACKS:
            self._stacks.ask(worker)
            return
        if signal.name == _ATTEND:
            worker.attend()
            return
        if signal.name not in _SIGNALS:
            raise Refusal(f"unknown signal {signal.name!r}; known signals: {', '.join(_SIGNALS)}, {_STACKS}, {_ATTEND}")
        worker.signal(_SIGNALS[signal.name])

    def _recall(self, recall: Recall) -> None:
        """Stop a worker from beginning runs, unless another process has taken its place."""
        worker = self.workers.one(recall.generation, recall.worker)
        if worker.pid == recall.pid:
            begun = worker.account.recall(recall.upto)
            self._tell([wire.RECALLED, recall.generation, recall.worker, recall.pid, recall.upto, begun])

    def _stop(self, request: int | None, generation: int, indexes: list[int], grace: float) -> None:
        for worker in self.workers.named(generation, indexes):
            worker.signal(signal.SIGTERM)
        self._stops.append((monotonic() + max(grace, 0.0), request, generation, indexes))

    def _follow(self, logs: Logs) -> None:
        worker = self.workers.one(logs.generation, logs.worker)
        try:
            self._tails.subscribe(worker, (logs.out, logs.err))
        except OSError as error:
            raise Refusal(f"cannot read the output of worker {logs.worker}: {error}") from None
        self._advance_logs()

    def _watch_machine(self, connection: Connection, command: list[str]) -> None:
        """Run the watch command, and repeat its last notice to a client that is new."""
        self._watch.run(command)
        if self._watching is not connection:
            self._watching = connection
            self._watch.repeat()

    def _shut_down(self, request: int, grace: float) -> None:
        generations: dict[int, list[int]] = {}
        for worker in self.workers.alive():
            generations.setdefault(worker.generation, []).append(worker.index)
        for generation, indexes in generations.items():
            self._stop(None, generation, indexes, grace)
        self._farewell = (monotonic() + grace, request)

    def _say_bye(self, request: int) -> None:
        self.why_ended = "the client shut it down"
        self._end_all()
        client = self._client
        if client is None:
            return
        # Nothing else is left to do, so a client that reads gets all of the remaining output.
        client.socket.settimeout(_FAREWELL)
        try:
            client.flush()
            while self._tails.wait(client) is not None:
                self._tails.advance(client)
            client.send([wire.AGENT_BYE, request])
        except OSError as error:
            log(f"the client did not wait for the farewell: {error}")

    # Ends

    def _watch_children(self) -> None:
        read, write = os.pipe()
        for descriptor in (read, write):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._on_term)

        def reap(event: int) -> None:
            os.read(read, 4096)
            self._reap()

        self._handle(read, reap)

    def _on_term(self, *_: object) -> None:
        self.why_ended = "it was terminated"

    def _owner_gone(self, pid: int) -> None:
        self.why_ended = f"the owner, process {pid}, is gone"

    def _reap(self) -> None:
        for worker in self.workers.reap():
            code, number, oom = worker.ended or (None, None, False)
            memory = ", out of memory" if oom else ""
            log(f"worker {worker.index} of generation {worker.generation} ended: code {code}, signal {number}{memory}")
            # Send the worker's last output before its end.
            self._send_output(worker.generation, worker.index)
            self._tell(self._exited(worker), last_words(worker))
            self._log_at = monotonic()

    def _end_all(self) -> None:
        self._watch.close()
        self.workers.end_all()
        self._reap()

    @staticmethod
    def _exited(worker: Worker) -> list[Any]:
        how = worker.ended or (None, None, False)
        return [wire.EXITED, worker.generation, worker.index, worker.pid, *how, worker.account.begun()]

    @staticmethod
    def _calls(worker: Worker) -> list[Any]:
        return [wire.CALLS, worker.generation, worker.index, worker.pid, worker.calls_path]


def _leave_no_core() -> None:
    """Write no core dumps when this process or a worker crashes; payloads may set other limits."""
    import resource

    most = resource.getrlimit(resource.RLIMIT_CORE)[1]
    # With a limit of 0 the system would still pass a core dump to the program that collects them.
    least = 1 if most == resource.RLIM_INFINITY else min(1, most)
    resource.setrlimit(resource.RLIMIT_CORE, (least, most))


def _boot_facts() -> dict[str, Any]:
    try:
        cpus = len(os.sched_getaffinity(0))
    except AttributeError:
        cpus = os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"cpus": cpus, "memory_bytes": memory, "hostname": socket.gethostname()}
