"""A worker enters the hooks, then runs tasks on its main thread (`python -m skyward.worker`)."""

from __future__ import annotations

# isort: off
from . import _bytecode

# isort: on
import _signal  # type: ignore[import-not-found, unused-ignore]
import contextlib
import os
import signal
import socket
import struct
import sys
from _thread import _count as _thread_count  # type: ignore[attr-defined, unused-ignore]
from _thread import get_ident
from collections import deque
from collections.abc import Iterator
from time import perf_counter_ns
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from . import _fork, _hooks, _payload, _state, _strays, _wire, _world
from ._alarm import TIMER, Alarm
from ._complaint import complain
from ._conceal import conceal
from ._descriptors import high_descriptor, raise_descriptor
from ._failure import failure_map, simple_failure
from ._notices import notices
from ._payload import Payload
from ._runner import Runner, flush
from ._session import LostDescriptorsError, Session, Task
from ._values import Buffer

if TYPE_CHECKING:
    from ._calls.hub import Hub
    from ._calls.store import Store

EXIT_HOOK: Final = 3
"""The exit code of a worker whose hook raised on exit."""
EXIT_DESCRIPTORS: Final = 4
"""The exit code of a worker whose payload closed the worker's own descriptors."""

_INDEX: Final = struct.Struct("<I")
_RECALLED: Final = simple_failure("recalled", "the client recalled the task before it began")
_GLANCE: Final = 0.2
"""Seconds between two looks for an interrupt while a payload waits to report."""
_STALE_NS: Final = 1_000_000
"""Nanoseconds. After a longer task the connection is read before the next one: it may hold a
`Cancel`.
"""


class _Leave(BaseException):
    """The worker was asked to end while it waits for work."""


class Worker:
    """One worker process."""

    hub: Hub | None = None
    """The calls of this process; None before the first call."""
    store: Store | None = None
    """The node's store; None before the first large array."""

    def __init__(self, spec: dict[str, Any], listener: socket.socket) -> None:
        cluster = spec["cluster"]
        self.generation: int = cluster["generation"]
        self.rank: int = cluster["node"] * cluster["workers_per_node"] + cluster["worker"]
        self.app_hooks, task_hooks = _hooks.load(spec.get("hooks") or ())
        self.stack = _hooks.Stack()
        self.runner = Runner(task_hooks, self.look)
        self.failure: dict[str, Any] | None = None
        self.retain_bytes: int = spec.get("retain_bytes") or 1 << 28
        self.session = Session(listener, self.generation, spec.get("max_frame") or _wire.MAX_FRAME)
        self.account = _account(spec.get("account"))
        """Two numbers, shared with the agent: the last run that began, the highest recalled run."""
        self.waiting = False
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
        notices.main, notices.look = get_ident(), self.look_for_notice
        self._handlers = (self.on_interrupt, self.on_terminate, self.on_attend)
        signals = (signal.SIGINT, signal.SIGTERM, signal.SIGURG)
        handlers: dict[int, object] = dict(zip(signals, self._handlers, strict=True))
        self._forks = _fork.Forks(handlers, self.detach, self.calls_lock, self.on_unraisable)
        self._alarm = Alarm()
        self.out = _keep(1)
        self.err = _keep(2)
        self.out_end = self.err_end = 0
        """The lengths of the output files when the last task ended, in bytes."""
        self.index = _INDEX.pack(cluster["worker"])
        self.index_of_calls = _INDEX.pack(cluster["worker"] | _wire.CALLS_ASKED)
        self.wake: int | None = None
        with contextlib.suppress(KeyError, OSError):
            self.wake = _open(spec["wake"], os.O_NONBLOCK)

    def _has_signals(self) -> bool:
        # The wrapper of `getsignal` in the module `signal` takes longer than all the rest of a
        # call.
        handlers = self._handlers
        return _signal.getsignal(2) is handlers[0] and _signal.getsignal(15) is handlers[1]

    def take_signals(self) -> None:
        """Install the signal handlers again; a payload or library may have replaced them.

        Python does not see handlers that native code installs, so this is called after each task
        that took long.
        """
        signal.signal(signal.SIGINT, self._handlers[0])
        signal.signal(signal.SIGTERM, self._handlers[1])
        # SIGURG: the agent asks the worker to read its connection. Unlike an interrupt, this does
        # not concern the payload, so system calls are restarted where possible.
        signal.signal(signal.SIGURG, self._handlers[2])
        signal.siginterrupt(signal.SIGURG, False)

    def enter(self) -> None:
        """Enter the hooks around the app, and report in `Hello` whether that succeeded."""
        ready, body = True, b""
        self.waiting = True
        try:
            self.stack.enter(self.app_hooks)
        except _hooks.HookError as error:
            self.failure = failure_map(error)
            ready, body = False, msgspec.msgpack.encode(self.failure)
            complain(str(error))
        except SystemExit as error:
            self.failure = simple_failure("hook", f"a hook called sys.exit({error.code!r})", phase="enter", plugin="")
            ready, body = False, msgspec.msgpack.encode(self.failure)
        finally:
            self.waiting = self.in_hooks = False
        flush()
        self.take_signals()
        self._alarm.note()
        version = ".".join(map(str, sys.version_info[:3]))
        head = [_wire.WORKER_HELLO, _wire.PROTOCOL, os.getpid(), self.generation, self.rank, ready, version]
        self.session.greet_with(head, body)

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
                self.tell_between_tasks()
            self.waiting = True
            if session.leaving:
                self.waiting = False
                return
            events = session.poll_alert() if answered else session.poll()
            answered = self.waiting = False
            session.attend(events)

    def execute(self, task: Task) -> bool:
        """Run one task and send its answer; return whether it took long."""
        began = perf_counter_ns()
        session = self.session
        run, payload, arguments, refusal = task
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
        _state.gang, _state.attempt, _state.depth = run.gang is not None, run.gang, run.depth or 0
        session.cancelled = False
        parts: list[Buffer] | None = None
        failure = refusal or self.failure
        if failure is None:
            if payload is None:
                failure = simple_failure("unknown", f"payload slot {run.payload} was empty when the task arrived")
            else:
                stream = _Output(session, identity) if identity in session.streams else None
                notices.in_task = True
                if type(arguments) is dict:
                    parts, failure = self.runner.run(payload, arguments, run.trace, stream)
                else:
                    parts, failure = self.run_call(payload, run.trace, cast("Buffer", arguments))
                    arguments = {}
                if _signal.getitimer(TIMER)[0] or self._alarm.is_armed:
                    self._alarm.end_task()
                notices.in_task = False
                notices.forget()
                if not self._has_signals():
                    self.take_signals()
        flush()
        if self.reports:
            self.send_reports()
        session.running = None
        if self.hub is not None:
            self.hub.end_run()
        if _thread_count() > (self.hub is not None) or _strays.threads:
            _strays.note()
        try:
            out, err = os.lseek(self.out, 0, os.SEEK_END), os.lseek(self.err, 0, os.SEEK_END)
        except OSError:
            raise LostDescriptorsError("the descriptors of its output files") from None
        if out != self.out_end or err != self.err_end:
            self.out_end, self.err_end = out, err
            self.wake_agent()
        took = perf_counter_ns() - began
        if took > _STALE_NS:
            self.take_signals()
        if parts is not None:
            session.result(identity, out, err, took // 1000, parts)
        else:
            session.failure(identity, out, err, took // 1000, failure)
        return took > _STALE_NS

    def run_call(
        self, payload: Payload, trace: tuple[str, str] | None, body: Buffer
    ) -> tuple[list[Buffer] | None, dict[str, Any]]:
        """Run a call that a payload of another worker, or of this one, has submitted."""
        from ._calls.answers import Call

        return self.runner.run(payload, {}, trace, None, Call(body))

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

    def detach(self) -> None:
        """Give up the connections in a forked child; its parent keeps them."""
        if self.hub is not None:
            self.hub.detach()
        self.session.detach()

    def calls_lock(self) -> Any:
        """Return the lock of the calls of this process, if it has made any."""
        return None if self.hub is None else self.hub.lock

    def leave(self) -> int:
        """Leave the hooks, and return the exit code."""
        self.in_hooks = True
        try:
            _world.leave()
        except Exception as error:
            complain(f"cannot end the world that a task on a single worker has left: {error}")
        failure = self.stack.leave()
        if failure is None:
            return 0
        complain(f"{failure}\n{failure_map(failure)['traceback']}")
        return EXIT_HOOK

    def on_interrupt(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGINT: raise an interrupt in the payload, if its task was cancelled."""
        if self._forks.defer(frame):
            return
        if self.runner.busy:
            self.look()
        else:
            self.miss()

    def miss(self) -> None:
        """Remember a signal that arrives while no code of the payload runs."""
        self.runner.missed = True
        if self.hub is not None:
            self.hub.wake_main()

    def on_attend(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGURG: read the connection, or leave it to the next request of the client."""
        if not self.runner.busy:
            self.miss()
        elif not self._forks.is_within(frame):
            self.look()

    def look_for_notice(self) -> None:
        """Read the connection when a payload asks for a notice on the main thread."""
        if self.runner.busy and get_ident() == notices.main:
            self.look()

    def tell_between_tasks(self) -> None:
        """Call functions that were registered outside of tasks; what they raise fails no task."""
        try:
            notices.tell()
        except BaseException as error:
            complain(
                f"a function registered with sky.on_notice failed between tasks: {failure_map(error)['traceback']}"
            )

    def look(self) -> None:
        """Read the connection, then interrupt the running task or call notice functions if needed.

        Raises:
            KeyboardInterrupt: the task has to end.
            BaseException: what a function raises that is called because of a notice.
        """
        runner = self.runner
        runner.busy = runner.missed = False
        try:
            self.session.pump()
        except LostDescriptorsError:
            pass  # the worker ends for this reason after the task
        finally:
            runner.busy = True
        self.interrupt()
        if notices.pending and self._is_in_task and not self._must_wait():
            notices.tell()

    def look_while_waiting(self) -> None:
        """Do what `look` does while the main thread waits for calls, without a busy runner.

        Raises:
            KeyboardInterrupt: the waiting task or call has to end.
            BaseException: what a function raises that is called because of a notice.
        """
        runner = self.runner
        runner.missed = False
        with contextlib.suppress(LostDescriptorsError):
            self.session.pump()
        self.interrupt()
        if notices.pending and self._is_in_task:
            runner.busy = True
            try:
                notices.tell()
            finally:
                runner.busy = False

    def interrupt(self) -> None:
        """Raise an interrupt if the code on the main thread, or what is around it, was cancelled.

        An interrupt is raised once. The client repeats it, because it may arrive too early, or
        while a library is being imported.
        """
        runner, cancelled, hub = self.runner, self.session.cancelled, self.hub
        helped = None if hub is None else hub.helped()
        if hub is not None and helped is not None:
            if not helped.interrupted and hub.is_doomed() and not self._must_wait():
                hub.give_up(helped)
                raise KeyboardInterrupt("the call was cancelled")
        elif self.terminated or (cancelled and not runner.interrupted and not self._must_wait()):
            runner.interrupted = True
            if hub is not None and hub.stack:
                hub.give_up(hub.stack[0])
            raise KeyboardInterrupt("the task was cancelled" if cancelled else "the worker was asked to end")

    def _must_wait(self) -> bool:
        """Return whether an exception would ruin the process; if so, `look` is called later."""
        if self.terminated or not _payload.is_importing_library(sys._getframe()):
            return False
        self.runner.missed = True
        return True

    @property
    def terminated(self) -> bool:
        """Whether the worker was asked to end as soon as possible."""
        return self.session.terminated

    @property
    def _is_in_task(self) -> bool:
        """Whether the main thread runs no helped call: then a notice concerns the task."""
        return self.hub is None or self.hub.helped() is None

    def on_terminate(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGTERM: interrupt the running task, leave the hooks, and end."""
        self.session.leaving = self.session.terminated = True
        self.session.queue.clear()
        if self.waiting and not self._forks.defer(frame):
            self.waiting = False
            raise _Leave
        self.on_interrupt(number, frame)

    def on_unraisable(self, unraisable: sys.UnraisableHookArgs) -> None:
        """Handle an exception that Python can only print, of a finalizer or `fork` callback.

        If the exception is a task's interrupt, it is sent again, because otherwise the task would
        continue.
        """
        hub, runner = self.hub, self.runner
        is_interrupt = isinstance(unraisable.exc_value, KeyboardInterrupt)
        if get_ident() != notices.main:
            # This thread runs an aside call. The client repeats its cancel.
            aside = None if hub is None or not is_interrupt else hub.aside()
            if aside is not None and aside.interrupted:
                aside.interrupted = False
                return
        elif is_interrupt and runner.busy:
            interrupted = runner if hub is None else hub.helped() or runner
            if interrupted.interrupted:
                interrupted.interrupted = False
                _fork.send_again()
                return
        sys.__unraisablehook__(unraisable)


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


def main() -> None:
    """Run the worker. The start spec is on standard input, the listener in the environment."""
    _bytecode.restore()
    spec = _read_spec()
    listener = raise_descriptor(socket.socket(fileno=int(os.environ.pop("SKYWARD_LISTEN_FD"))))
    listener.setblocking(False)
    conceal(spec.get("secrets") or ())
    _state.cluster = spec["cluster"]
    if sys.path[0] == os.getcwd():
        # Modules in the working folder can be imported, but must not hide modules of libraries.
        sys.path.append(sys.path.pop(0))
    _set_up_output(spec.get("stacks"))
    if progress := spec.get("progress"):
        _state.progress = _open(progress, os.O_CREAT)
    worker = _state.worker = Worker(spec, listener)
    worker.take_signals()
    sys.unraisablehook = worker.on_unraisable
    try:
        worker.enter()
        worker.serve()
    except _Leave:
        pass
    except LostDescriptorsError as error:
        text = f"skyward: the payload closed descriptors of the worker, which cannot continue without {error}\n"
        try:
            os.write(2, text.encode())
        finally:
            os._exit(EXIT_DESCRIPTORS)
    code = worker.leave()
    _exit(code)


def _read_spec() -> dict[str, Any]:
    with open(0, "rb", closefd=False) as source:
        data = source.read()
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    head_length, body_length = _wire.HEADER.unpack_from(data)
    return cast("dict[str, Any]", msgspec.msgpack.decode(data[8 + head_length : 8 + head_length + body_length]))


def _set_up_output(stacks: str | None) -> None:
    """Write the payload's output line by line, and never fail because of what it prints.

    Args:
        stacks: the file to which the stacks of all threads are written on SIGUSR1.
    """
    for stream in (sys.stdout, sys.stderr):
        cast("Any", stream).reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
    import faulthandler

    descriptor = _keep(2)
    faulthandler.enable(descriptor)
    asked = descriptor if stacks is None else _open(stacks, os.O_CREAT | os.O_APPEND)
    faulthandler.register(signal.SIGUSR1, asked, all_threads=True, chain=False)


def _account(path: str | None) -> memoryview:
    """Map the account file that the agent created; without an agent, return a private pair."""
    import mmap

    if path is None:
        return memoryview(bytearray(16)).cast("Q")
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        return memoryview(mmap.mmap(descriptor, 16)).cast("Q")
    finally:
        os.close(descriptor)


def _open(path: str, flags: int) -> int:
    """Open a file of the worker's own, at a high descriptor."""
    low = os.open(path, os.O_WRONLY | os.O_CLOEXEC | flags, 0o600)
    high = _keep(low)
    os.close(low)
    return high


def _keep(descriptor: int) -> int:
    """Duplicate a descriptor to a high number: a payload may close or redirect the original."""
    import fcntl

    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, high_descriptor())


def _exit(code: int) -> None:
    """End without waiting for threads that the payload left behind."""
    import atexit

    atexit._run_exitfuncs()
    flush()
    os._exit(code)


if __name__ == "__main__":
    main()
elif __name__ == "__mp_main__":
    # `multiprocessing` imports the main module under this name in a process that it spawns.
    _bytecode.restore()
    _payload.adopt()
