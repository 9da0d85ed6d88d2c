"""A worker enters the hooks, then runs tasks on its main thread."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found, unused-ignore]
import contextlib
import os
import socket
import struct
import sys
from _thread import _count as _thread_count  # type: ignore[attr-defined, unused-ignore]
from collections import deque
from collections.abc import Iterator
from signal import SIG_DFL, SIGALRM
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from .._core import process_state, replaced, state, strays, wire
from .._core.complaint import complain
from .._core.messages import Source
from .._libraries import layouts, seeds, world
from .._sky.notices import notices
from .._tasks import event_loop, hooks
from .._tasks.failure import failure_map, simple_failure
from .._tasks.payload import Payload
from .._tasks.runner import flush
from .._tasks.session import LostDescriptorsError, Session, Task
from .._values.codec import Buffer
from .alarm import TIMER, Alarm
from .interrupts import Interrupts, LeaveError
from .process import account, keep, open_file
from .streams import losses

if TYPE_CHECKING:
    from .._calls.store import Store
    from .._nested.start import Caller

EXIT_HOOK: Final = 3
"""The exit code of a worker whose hook raised on exit."""
EXIT_CHANGED: Final = 5
"""The exit code of a worker whose payload changed its process for good."""
EXIT_DESCRIPTORS: Final = 4
"""The exit code of a worker whose payload closed the worker's own descriptors."""

process_state.exclude(state.RANKS)

_INDEX: Final = struct.Struct("<I")
_RECALLED: Final = simple_failure("recalled", "the client recalled the task before it began")
_GLANCE: Final = 0.2
"""Seconds between two looks for an interrupt while a payload waits to report."""
_ALARM: Final = int(SIGALRM)
_DEFAULT: Final = int(SIG_DFL)
_STALE_NS: Final = 1_000_000
"""Nanoseconds. After a longer task the connection is read before the next one: it may hold a
`Cancel`.
"""


class ChangedError(Exception):
    """A payload has changed this process, and that cannot be set back."""


class Worker(Interrupts):
    """One worker process."""

    store: Store | None = None
    """The node's store; None before the first large array."""

    def __init__(self, spec: dict[str, Any], listener: socket.socket) -> None:
        cluster = spec["cluster"]
        self.generation: int = cluster["generation"]
        self.rank: int = cluster["node"] * cluster["workers_per_node"] + cluster["worker"]
        self.app_hooks, task_hooks = hooks.load(spec.get("hooks") or ())
        self.stack = hooks.Stack()
        self.failure: dict[str, Any] | None = None
        self.retain_bytes: int = spec.get("retain_bytes") or 1 << 28
        session = Session(listener, self.generation, spec.get("max_frame_bytes") or wire.MAX_FRAME_BYTES)
        super().__init__(session, task_hooks)
        sources = msgspec.convert(spec.get("payloads") or [], list[tuple[str, Source]])
        session.declared = [Payload(digest, source) for digest, source in sources]
        self.account = account(spec.get("account"))
        """Two numbers, shared with the agent: the last run that began, the highest recalled run."""
        self.pid = os.getpid()
        self.reports: deque[tuple[int, bytes]] = deque()
        """Reports that the main thread must send: the run that made each, or 0, and its value."""
        self.is_reporting = False
        """Whether the main thread is sending a report. Other code of the payload that reports then
        has to wait.
        """
        self.in_hooks = True
        """Whether the hooks around the app are being entered or left. No run is busy then, and
        hooks may report.
        """
        self.calls: str | None = spec.get("calls")
        """The path at which the client connects, once a payload submits calls."""
        self.store_folder: str | None = spec.get("store")
        """The folder in which this node keeps large arrays of calls."""
        self.store_bytes: int = spec.get("store_bytes") or 1 << 34
        self._alarm = Alarm()
        self.out = keep(1)
        self.err = keep(2)
        self.out_end = self.err_end = 0
        """The lengths of the output files when the last task ended, in bytes."""
        self._unchecked: Payload | None = None
        """The payload that may have changed what only `_set_back` looks for."""
        self.index = _INDEX.pack(cluster["worker"])
        self.index_of_calls = _INDEX.pack(cluster["worker"] | wire.CALLS_ASKED)
        self.wake: int | None = None
        with contextlib.suppress(KeyError, OSError):
            self.wake = open_file(spec["wake"], os.O_NONBLOCK)

    def enter(self) -> None:
        """Enter the hooks around the app and import the declared payloads; `Hello` reports whether that succeeded."""
        self.waiting = True
        try:
            self.stack.enter(self.app_hooks)
            self._import_declared()
        except hooks.HookError as error:
            self.failure = failure_map(error)
            complain(str(error))
        except SystemExit as error:
            self.failure = simple_failure("hook", f"a hook called sys.exit({error.code!r})", phase="enter", plugin="")
        finally:
            self.waiting = self.in_hooks = False
        flush()
        self.take_signals()
        self._alarm.note()
        version = ".".join(map(str, sys.version_info[:3]))
        ready, body = self.failure is None, b"" if self.failure is None else msgspec.msgpack.encode(self.failure)
        head = [wire.WORKER_HELLO, wire.PROTOCOL, os.getpid(), self.generation, self.rank, ready, version]
        self.session.greet_with(head, body)

    def _import_declared(self) -> None:
        """Import the declared payloads; the first that fails is the failure of this worker."""
        for payload in self.session.declared:
            try:
                payload.function()
            except LeaveError:
                raise
            except BaseException as error:
                self.failure = {**failure_map(error, payload.owns), "payload": payload.digest}
                complain(f"cannot import {payload.source.main}: {type(error).__name__}: {error}")
                return

    def serve(self) -> None:
        """Run tasks until the client or the agent ends the worker."""
        session = self.session
        queue_is_stale = answered = False
        while True:
            if session.queue and session.retained_bytes <= self.retain_bytes:
                if queue_is_stale:
                    session.pump()
                if session.queue:
                    queue_is_stale = self.execute(session.queue.popleft())
                    answered = True
                    if session.evicted:
                        session.release_evicted()
                if session.lost:
                    raise LostDescriptorsError("the descriptor of its connection")
                continue
            if notices.pending:
                self.deliver_between_tasks()
            if answered and not self._alarm.is_armed:
                self._end_timer()
            self.waiting = True
            if session.leaving:
                self.waiting = False
                return
            events = session.poll_alert(self._on_idle) if answered else session.poll(self._on_idle)
            answered = self.waiting = False
            session.attend(events)

    def on_quiet(self) -> None:
        """Give up what only a call that comes soon could use."""
        if self.store is not None:
            self.store.mappings.give_up()

    def _on_idle(self) -> None:
        """Do what would keep a call waiting."""
        self.on_quiet()
        self._set_back()

    def _set_back(self) -> None:
        """Set back what the last payload has changed in the process.

        Raises:
            ChangedError: that is not possible, so the worker has to end.
        """
        payload, self._unchecked = self._unchecked, None
        if payload is None:
            return
        stuck = replaced.set_back()
        for descriptor, kept in ((1, self.out), (2, self.err)):
            with contextlib.suppress(OSError):
                # Whether it was closed or leads elsewhere: it is the kept one again.
                os.dup2(kept, descriptor)
        if stuck:
            source = payload.source
            raise ChangedError(f"{source.entry} of {source.main} changed {', '.join(stuck)} for good")

    def execute(self, task: Task) -> bool:
        """Run one task and send its answer; return whether it took long."""
        began = perf_counter_ns()
        session = self.session
        run, payload, arguments, refusal = task
        if payload is not self._unchecked:
            self._set_back()
        identity = run.run
        account = self.account
        recalled = identity <= account[1]
        if not recalled:
            # The agent writes the second number and then reads the first; the worker writes the
            # first and then reads the second. So either the agent sees that the run has begun, or
            # the worker sees the recall.
            account[0] = identity
            recalled = identity <= account[1]
        if recalled:
            session.failure(identity, 0, 0, 0, _RECALLED)
            return False
        session.running = identity
        gang = run.gang
        state.gang, state.attempt, state.depth = gang is not None, gang and gang[:2], run.depth or 0
        seeds.root = None
        ranks = 1 if gang is None else gang[2]
        if ranks != state.ranks:
            state.ranks = ranks
            os.environ[state.RANKS] = str(ranks)
        if self.store is not None and not run.depth:
            self.store.mappings.give_up()
        session.cancelled = False
        parts: list[Buffer] | None = None
        failure = refusal or self.failure
        if failure is None:
            if payload is None:
                failure = simple_failure("unknown", f"the worker had no payload {run.payload} when the task arrived")
            else:
                stream = _Output(session, identity) if identity in session.streams else None
                notices.in_task = True
                self._unchecked = payload
                if type(arguments) is dict:
                    parts, failure = self.runner.run(payload, arguments, run.trace, stream)
                else:
                    parts, failure = self.run_call(payload, run.trace, cast("Buffer", arguments))
                    arguments = {}
                # A timer without a handler is looked for only after a long task, and when no further
                # task waits: asking the system takes a tenth of a short call.
                if _signal.getsignal(_ALARM) != _DEFAULT or self._alarm.is_armed:
                    self._end_timer()
                notices.in_task = False
                if notices.of_task:
                    notices.forget()
                if not self._has_signals():
                    self.take_signals()
        warnings = layouts.take_warnings() if layouts.lookups else None
        flush()
        if losses.are_news:
            warnings = [*(warnings or ()), losses.take_warning()]
        if self.reports:
            self.send_reports()
        session.running = None
        if self.hub is not None:
            self.hub.end_run()
        if _thread_count() > (self.hub is not None) or strays.threads:
            strays.note()
        try:
            out, err = os.lseek(self.out, 0, os.SEEK_END), os.lseek(self.err, 0, os.SEEK_END)
        except OSError:
            raise LostDescriptorsError("the descriptors of its output files") from None
        if out != self.out_end or err != self.err_end:
            self.out_end, self.err_end = out, err
            self.wake_agent()
        took = perf_counter_ns() - began
        if took > _STALE_NS:
            self._end_timer()
            self.take_signals()
        if parts is not None:
            session.result(identity, out, err, took // 1000, parts, warnings)
        else:
            session.failure(identity, out, err, took // 1000, failure, warnings)
        if took > _STALE_NS:
            self._set_back()
        return took > _STALE_NS

    def _end_timer(self) -> None:
        """End the timer of a task, if there may be one."""
        if self._alarm.is_armed or _signal.getitimer(TIMER)[0]:
            self._alarm.end_task()

    def run_call(
        self, payload: Payload, trace: tuple[str, str] | None, body: Buffer
    ) -> tuple[list[Buffer] | None, dict[str, Any]]:
        """Run a call that a payload of another worker, or of this one, has submitted."""
        from .._calls.answers import Call
        from .._calls.process_store import on_ended

        answer = self.runner.run(payload, {}, trace, None, Call(body))
        # Only now: the value or the traceback of the call may have referred to its arrays.
        on_ended()
        return answer

    def report(self, body: bytes) -> None:
        """Send a report on the main thread, and wait while too many are not acknowledged.

        Raises:
            KeyboardInterrupt: the task was cancelled meanwhile.
        """
        runner, session = self.runner, self.session
        self.reports.append((session.running or 0, body))
        if self.is_reporting or not (runner.busy or self.in_hooks):
            return  # called by a finalizer or signal handler within the worker's own code; sent with the next report
        self.send_reports()
        # A hook around the app runs before any client is connected.
        while not (self.in_hooks or session.may_report or session.leaving or runner.interrupted):
            self._await_reports()
            if runner.missed or notices.pending or session.cancelled:
                self.look()

    def send_reports(self) -> None:
        """Send all waiting reports."""
        with self._reporting():
            while self.reports:
                self.session.report(*self.reports.popleft())

    def _await_reports(self) -> None:
        with self._reporting():
            self.session.wait(_GLANCE)

    @contextlib.contextmanager
    def _reporting(self) -> Iterator[None]:
        """Keep interrupts out. An exception ends the connection, but no report is lost."""
        runner = self.runner
        busy, runner.busy, self.is_reporting = runner.busy, False, True
        try:
            yield
        except BaseException:
            # Raised by a signal handler of the payload.
            self.session.abandon()
            raise
        finally:
            runner.busy, self.is_reporting = busy, False
        if busy and (runner.missed or notices.pending):
            self.look()

    def wake_agent(self) -> None:
        """Ask the agent to send the task's output now, instead of at its next look."""
        if self.wake is not None:
            try:
                os.write(self.wake, self.index)
            except OSError:
                pass  # the pipe is full, so the agent will read soon; or the payload has closed the pipe

    def ask_for_calls(self) -> None:
        """Ask the agent to report to the client that there are calls; wait if the pipe is full.

        Raises:
            LostDescriptorsError: the payload has closed the pipe.
        """
        import select

        assert self.wake is not None
        while True:
            try:
                os.write(self.wake, self.index_of_calls)
                return
            except BlockingIOError:
                select.select((), (self.wake,), ())
            except OSError:
                raise LostDescriptorsError("the pipe to its agent") from None

    def leave(self) -> int:
        """Leave the hooks, and return the exit code."""
        from .buffered import write_files

        # Hooks may wait for other ranks, and functions of `atexit` for processes of the payload, until
        # the agent kills this process.
        write_files()
        self.in_hooks = True
        try:
            event_loop.leave()
        except Exception as error:
            complain(f"cannot end the event loop of the payloads: {error}")
        try:
            world.leave()
        except Exception as error:
            complain(f"cannot end the world that a task on a single worker has left: {error}")
        failure = self.stack.leave()
        if failure is None:
            return 0
        complain(f"{failure}\n{failure_map(failure)['traceback']}")
        return EXIT_HOOK


if TYPE_CHECKING:

    def _submits(worker: Worker) -> Caller:
        """Let mypy compare a worker with what calls need of it."""
        return worker


class _Output:
    """Sends the items of one task's stream."""

    def __init__(self, session: Session, run: int) -> None:
        self.session = session
        self.run = run

    def wait(self) -> bool:
        """Wait for credit; return False if the task was cancelled."""
        session = self.session
        if session.is_alone:
            # No client receives the items until one has connected again.
            session.pump()
        while not session.cancelled and not session.leaving:
            if notices.pending or session.may_send(self.run):
                return True
            session.wait()
        return False

    def may_put(self) -> bool:
        """Return whether there is credit."""
        return self.session.may_send(self.run)

    def put(self, parts: list[Buffer]) -> None:
        """Send one item."""
        self.session.item(self.run, parts)
