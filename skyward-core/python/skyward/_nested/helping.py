"""Calls that a worker runs while its task waits: on the main thread, or on their own thread."""

from __future__ import annotations

# isort: off
import _signal  # type: ignore[import-not-found, unused-ignore]

# isort: on
import signal
import sys
import threading
from _thread import get_ident
from functools import partial
from time import monotonic, perf_counter_ns
from typing import Any, Final

import msgspec

from .._calls.answers import Call
from .._calls.handlers import EXHAUSTED
from .._calls.process_store import on_ended
from .._core import fork, wire
from .._libraries import leftovers, seeds
from .._tasks.failure import simple_failure
from .._values.codec import Buffer
from .awaiting import Awaiting
from .frames import AsideFrame, Frame
from .hub import Hub
from .messages import Help

_encode = msgspec.msgpack.Encoder().encode
CANCELLED: Final = _encode(simple_failure("cancelled", "the call was cancelled"))
_CANCELLED: Final[tuple[int, Buffer]] = (wire.HELP_FAILED, CANCELLED)
"""The answer of a cancelled call. What the call returned or raised is not described, which runs the payload's code."""
_NOT_ENDED: Final = _encode(
    simple_failure(
        "encode",
        "the worker ran out of memory or stack, or a signal handler raised, before it could send the outcome of the "
        "call",
    )
)
_ALARM: Final = int(signal.SIGALRM)
_SOON: Final = 1e-6
"""Seconds. Zero would disarm the timer."""
_MOST_ROOM: Final = 10
"""The largest factor of the recursion limit: old versions of Python recurse on the C stack."""


def on_main(hub: Hub, awaiting: Awaiting[Any]) -> None:
    """Run the next helped call on the waiting main thread, whose runner is not busy, and answer it.

    Args:
        hub: the hub of the process.
        awaiting: what the thread waits for, and continues to wait for when this returns.
    """
    outer = len(hub.stack)
    first = hub.helps[0] if hub.helps else None
    try:
        _on_main(hub, awaiting)
    except BaseException as error:
        # Answer, or the client would consider the call as still running. The thread that serves
        # answers: this one may have no stack left.
        with hub.lock:
            frames = hub.stack[outer:]
            del hub.stack[outer:]
            hub.main_wait = awaiting
            if frames:
                if not frames[0].answered:
                    hub.later.append(partial(hub.end_frame, frames[0], wire.HELP_FAILED, 0, body=_NOT_ENDED))
                if hub.helps and hub.helps[0][0].help == frames[0].help:
                    hub.helps.popleft()
            elif hub.helps and hub.helps[0] is first and isinstance(error, EXHAUSTED):
                hub.later.append(partial(_fail, hub, first[0].help))
                hub.helps.popleft()
            # After a signal handler of the payload has raised, a call that has not begun stays in
            # `hub.helps`, and is refused.
        hub.channel.nudge()
        raise


def _fail(hub: Hub, help: int) -> None:
    with hub.lock:
        hub.send(wire.HELP_FAILED, help, 0, body=_NOT_ENDED)


def _on_main(hub: Hub, awaiting: Awaiting[Any]) -> None:
    runner = hub.runner
    value: Any = None
    error: BaseException | None = None
    began = perf_counter_ns()
    with Room(len(hub.stack)), NoLoop(), leftovers.Apart(), seeds.Apart():
        with hub.lock:
            if not hub.helps:
                return  # it was cancelled
            help, body = hub.helps[0]
            frame = Frame(help.run, help.help, help.depth)
            call = Call(body)
            hub.stack.append(frame)
            hub.main_wait = None
            hub.helps.popleft()
        del body
        try:
            try:
                runner.busy = True
                if runner.missed:
                    hub.worker.look()
                value = runner.context.copy().run(call)
                runner.busy = False
            except BaseException as raised:
                runner.busy = False
                error = raised
            # A timer that the call has left must not fire in its caller.
            signal.setitimer(signal.ITIMER_REAL, 0)
        except BaseException as raised:
            # An interrupt, or an exception of that timer, was raised between two lines above.
            runner.busy = False
            error = raised
            signal.setitimer(signal.ITIMER_REAL, 0)
    if fork.is_child:
        fork.end(error)
    micros = (perf_counter_ns() - began) // 1000
    # Code around the call may be cancelled, and the call's code may have suppressed the interrupt.
    number, reply = _CANCELLED if frame.interrupted or hub.is_doomed() else _answer(hub, call, value, error)
    del value, error
    on_ended()
    # The code that describes the answer may have been interrupted too.
    if frame.interrupted or hub.is_doomed():
        number, reply = _CANCELLED
    with hub.lock:
        # The client may request the next call as soon as it has the answer.
        hub.main_wait = awaiting
        hub.end_frame(frame, number, micros, body=reply)
        hub.stack.pop()


def aside(hub: Hub, help: Help, body: Buffer) -> bool:
    """Run a call on a new thread; return whether the thread could be started."""
    frame = AsideFrame(help.run, help.help, help.depth)
    with hub.lock:
        hub.asides[help.help] = frame
    try:
        name = f"skyward call {help.help}"
        threading.Thread(target=_run_aside, args=(hub, frame, Call(body)), name=name, daemon=True).start()
    except BaseException as error:
        with hub.lock:
            if frame.thread:
                return True  # the thread runs: memory ran out after its start
            # If the thread begins only now, it finds no entry, and ends.
            del hub.asides[help.help]
        if isinstance(error, RuntimeError):
            return False
        raise
    return True


def _run_aside(hub: Hub, frame: AsideFrame, call: Call) -> None:
    me = get_ident()
    with hub.lock:
        if hub.asides.get(frame.help) is not frame:
            return
        hub.threads[me] = frame
        frame.thread = me
    value: Any = None
    error: BaseException | None = None
    began = perf_counter_ns()
    try:
        try:
            frame.leave()
            value = hub.runner.context.copy().run(call)
            if fork.is_child:
                fork.end(None)
            frame.enter()
        except BaseException as raised:
            error = raised
            if fork.is_child:
                fork.end(error)
            frame.enter()
    except BaseException as raised:
        # An interrupt was raised between two lines above.
        error = raised
        frame.enter()
    micros = (perf_counter_ns() - began) // 1000
    number, reply = _CANCELLED if frame.cancelled or frame.ended else _answer(hub, call, value, error)
    del value, error
    with hub.lock:
        hub.asides.pop(frame.help, None)
    hub.threads.pop(me, None)
    if frame.cancelled or frame.ended:
        number, reply = _CANCELLED
    try:
        on_ended()
        hub.end_frame(frame, number, micros, body=reply)
    except BaseException:
        if not frame.answered:
            hub.later.append(partial(hub.end_frame, frame, wire.HELP_FAILED, 0, body=_NOT_ENDED))
            hub.channel.nudge()
        raise


def _answer(hub: Hub, call: Call, value: Any, error: BaseException | None) -> tuple[int, Buffer]:
    """Return the number and the body of the message that answers a helped call."""
    try:
        if error is None:
            [answer] = call.answer(value)
        else:
            parts, failure = call.fail(error)
            if parts is None:
                return wire.HELP_FAILED, _encode(failure)
            [answer] = parts
    except BaseException as raised:
        # Reducers and texts of exceptions are the payload's code, and even the text of this error
        # may be what failed.
        text = f"cannot send the outcome of the call: pickling it raised {type(raised).__name__}"
        return wire.HELP_FAILED, _encode(simple_failure("encode", text))
    if len(answer) > hub.max_frame_bytes:
        text = f"the result has {len(answer)} bytes; a frame holds at most {hub.max_frame_bytes}"
        return wire.HELP_FAILED, _encode(simple_failure("too_large", text))
    return wire.HELPED, answer


class Timer:
    """Pauses the caller's timer (`signal.setitimer`, `signal.alarm`) while the worker helps.

    An exception of the timer's handler belongs to the wait, not to the helped call, which may set a
    timer of its own.
    """

    def __init__(self) -> None:
        """Pause the timer."""
        self._left, self._interval = signal.getitimer(signal.ITIMER_REAL)
        self._handler = _signal.getsignal(_ALARM)
        if self._left:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self._since = monotonic()

    def go_on(self) -> None:
        """Continue the timer; if it is due, it fires at once.

        Raises:
            BaseException: what the timer's handler raises.
        """
        if self._handler is not None and _signal.getsignal(_ALARM) is not self._handler:
            _signal.signal(_ALARM, self._handler)
        if self._left:
            signal.setitimer(signal.ITIMER_REAL, max(self._left - (monotonic() - self._since), _SOON), self._interval)


class Room:
    """Raises the recursion limit for a helped call, which runs on top of the waiting stack."""

    def __init__(self, below: int) -> None:
        self._before = sys.getrecursionlimit()
        base = self._before // min(below, _MOST_ROOM)
        self._given = base * min(below + 1, _MOST_ROOM)

    def __enter__(self) -> None:
        sys.setrecursionlimit(self._given)

    def __exit__(self, *_: object) -> None:
        if sys.getrecursionlimit() != self._given:
            return  # the payload has set another limit
        try:
            sys.setrecursionlimit(self._before)
        except RecursionError:
            pass  # the stack is deeper than the old limit; an outer helped call restores its own


class NoLoop:
    """Hides the event loop that runs around a helped call, so that the call may run its own."""

    def __enter__(self) -> None:
        events: Any = sys.modules.get("asyncio.events")
        self._loop = None if events is None else events._get_running_loop()
        self._task: Any = None
        # From Python 3.14 on, a thread has one current task, whatever its loop is.
        tasks: Any = sys.modules.get("asyncio.tasks")
        self._swap: Any = getattr(tasks, "_swap_current_task", None)
        if self._loop is not None:
            # Python 3.12 cannot swap where no task runs, as in a callback of the loop.
            if self._swap is not None and tasks.current_task(self._loop) is not None:
                self._task = self._swap(self._loop, None)
            events._set_running_loop(None)

    def __exit__(self, *_: object) -> None:
        if self._loop is not None:
            events: Any = sys.modules["asyncio.events"]
            events._set_running_loop(self._loop)
            if self._task is not None:
                self._swap(self._loop, self._task)
