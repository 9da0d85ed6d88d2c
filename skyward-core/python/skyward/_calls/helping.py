"""Calls that a worker runs while its own task waits for them: on the main thread, or on one of their own."""

from __future__ import annotations

import signal
import sys
import threading
from _thread import get_ident
from time import monotonic, perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

import msgspec

from .. import _fork, _wire
from .._failure import simple_failure
from .._values import Buffer
from .answers import Call
from .frames import AsideFrame, Awaiting, Frame
from .messages import Help

if TYPE_CHECKING:
    from .hub import Hub

_encode = msgspec.msgpack.Encoder().encode
CANCELLED: Final = _encode(simple_failure("cancelled", "the call was cancelled"))
_NO_ROOM: Final = _encode(simple_failure("encode", "the worker had no room on its stack, or no memory, for the call"))
_SOON: Final = 1e-6
"""Seconds; none would end the timer."""
_MOST_ROOM: Final = 10
"""How many times the limit of recursion is given: on old versions of Python it stands for memory of the stack."""


def on_main(hub: Hub, awaiting: Awaiting, help: Help, body: Buffer) -> None:
    """Run a call on the waiting main thread, whose runner is not busy, and answer it.

    Args:
        hub: the calls of the process.
        awaiting: what the thread waits for, and goes on waiting for when this returns.
        help: what the client asks for.
        body: the call.
    """
    outer = len(hub.stack)
    hub.main_wait = None
    try:
        _on_main(hub, awaiting, help, body)
    except BaseException:
        # No room on the stack, or no memory. The client must not take the call for one that still runs.
        with hub.lock:
            frames = hub.stack[outer:]
            del hub.stack[outer:]
            hub.main_wait = awaiting
        if not frames or not frames[0].ended:
            frame = frames[0] if frames else Frame(help.run, help.help, help.depth)
            hub.end_frame(frame, _wire.HELP_FAILED, 0, body=_NO_ROOM)
        raise


def _on_main(hub: Hub, awaiting: Awaiting, help: Help, body: Buffer) -> None:
    runner = hub.runner
    frame = Frame(help.run, help.help, help.depth)
    call = Call(body)
    del body
    value: Any = None
    error: BaseException | None = None
    began = perf_counter_ns()
    with _Room(len(hub.stack)), _NoLoop():
        hub.stack.append(frame)
        try:
            try:
                runner.busy = True
                if runner.missed:
                    hub.worker.look()
                value = call()
                runner.busy = False
            except BaseException as raised:
                runner.busy = False
                error = raised
        except BaseException as raised:
            # An interrupt came between two lines above.
            runner.busy = False
            error = raised
    if _fork.is_child:
        _fork.end(error)
    micros = (perf_counter_ns() - began) // 1000
    answer = _answer(hub, call, value, error)
    del value, error
    # What is around the call may have been cancelled, and its code may have kept the interrupt for itself.
    cancelled = frame.interrupted or hub.is_doomed()
    with hub.lock:
        hub.stack.pop()
        # The client may ask for the next call as soon as it has the answer.
        hub.main_wait = awaiting
    number, reply = (_wire.HELP_FAILED, CANCELLED) if cancelled else answer
    hub.end_frame(frame, number, micros, body=reply)


def aside(hub: Hub, help: Help, body: Buffer) -> bool:
    """Run a call on a thread of its own; whether there is one for it."""
    frame = AsideFrame(help.run, help.help, help.depth)
    with hub.lock:
        hub.asides[help.help] = frame
    try:
        name = f"skyward call {help.help}"
        threading.Thread(target=_run_aside, args=(hub, frame, Call(body)), name=name, daemon=True).start()
    except BaseException as error:
        with hub.lock:
            if frame.thread:
                return True  # it runs: there was no memory for what comes after its start
            # It finds that it is not wanted, should it begin now.
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
            value = call()
            if _fork.is_child:
                _fork.end(None)
            frame.enter()
        except BaseException as raised:
            error = raised
            if _fork.is_child:
                _fork.end(error)
            frame.enter()
    except BaseException as raised:
        # An interrupt came between two lines above.
        error = raised
        frame.enter()
    micros = (perf_counter_ns() - began) // 1000
    answer = _answer(hub, call, value, error)
    del value, error
    with hub.lock:
        hub.asides.pop(frame.help, None)
    hub.threads.pop(me, None)
    number, reply = (_wire.HELP_FAILED, CANCELLED) if frame.cancelled or frame.ended else answer
    hub.end_frame(frame, number, micros, body=reply)


def _answer(hub: Hub, call: Call, value: Any, error: BaseException | None) -> tuple[int, Buffer]:
    """The number and the body of the message that answers a helped call."""
    try:
        if error is None:
            [answer] = call.answer(value)
        else:
            parts, failure = call.fail(error)
            if parts is None:
                return _wire.HELP_FAILED, _encode(failure)
            [answer] = parts
    except BaseException as raised:
        # Reducers and texts of exceptions are the payload's code. Its own words may be what has failed.
        text = f"what the call came to cannot be sent: its pickling has raised {type(raised).__name__}"
        return _wire.HELP_FAILED, _encode(simple_failure("encode", text))
    if len(answer) > hub.max_frame:
        text = f"the result has {len(answer)} bytes, and a frame may have {hub.max_frame}"
        return _wire.HELP_FAILED, _encode(simple_failure("too_large", text))
    return _wire.HELPED, answer


class Timer:
    """Holds the timer that a caller has set (`signal.setitimer`, `signal.alarm`) while it helps.

    What its handler raises is for the wait, not for the helped call, which may set a timer of its own.
    """

    def __init__(self) -> None:
        """Hold it."""
        self._left, self._interval = signal.getitimer(signal.ITIMER_REAL)
        if self._left:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self._handler = signal.getsignal(signal.SIGALRM)
            self._since = monotonic()

    def go_on(self) -> None:
        """Let it go on; if it is due, at once.

        Raises:
            BaseException: what its handler raises.
        """
        if self._left:
            if self._handler is not None:
                signal.signal(signal.SIGALRM, self._handler)
            signal.setitimer(signal.ITIMER_REAL, max(self._left - (monotonic() - self._since), _SOON), self._interval)


class _Room:
    """Gives a helped call the recursion that it would have by itself: it stands on all that waits below it."""

    def __init__(self, below: int) -> None:
        self._before = sys.getrecursionlimit()
        base = self._before // min(below, _MOST_ROOM)
        self._given = base * min(below + 1, _MOST_ROOM)

    def __enter__(self) -> None:
        sys.setrecursionlimit(self._given)

    def __exit__(self, *_: object) -> None:
        if sys.getrecursionlimit() != self._given:
            return  # the payload has set another
        try:
            sys.setrecursionlimit(self._before)
        except RecursionError:
            pass  # it is deeper than that already, and whoever is below sets its own


class _NoLoop:
    """Hides the event loop that runs around a helped call, which may run one of its own."""

    def __enter__(self) -> None:
        events: Any = sys.modules.get("asyncio.events")
        self._loop = None if events is None else events._get_running_loop()
        if self._loop is not None:
            events._set_running_loop(None)

    def __exit__(self, *_: object) -> None:
        if self._loop is not None:
            events: Any = sys.modules["asyncio.events"]
            events._set_running_loop(self._loop)
