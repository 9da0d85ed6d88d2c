"""Calls of payloads whose memory or stack runs out, or whose timers raise, in the middle of them."""

from __future__ import annotations

import asyncio
import select
from contextlib import suppress
from time import monotonic
from typing import Any

import pytest

from skyward._calls.answers import unpack
from skyward._core import wire
from skyward._nested.helping import NoLoop

from .caller import Caller
from .client import DEADLINE, CallsClient
from .conftest import Node
from .pool import Pool

SEVEN = b"\0\x80\x05K\x07."

PAYLOAD = '''
import builtins
import functools
import os
import signal
import sys
import time

import skyward as sky

def double(number):
    return 2 * number

def set_timer(seconds):
    def late(*_):
        raise RuntimeError("the timer of the helped call")
    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    return 4

class Slow:
    """Takes long to pickle."""
    def __reduce__(self):
        time.sleep(5)
        return Slow, ()

def main(what, **more):
    return globals()["do_" + what](**more)

def do_deep(margin):
    future = sky.submit(double, 4)
    while not sky._core.state.worker.hub.channel._greeted:
        time.sleep(0.001)
    def down():
        frame, depth = sys._getframe(), 0
        while frame is not None:
            frame, depth = frame.f_back, depth + 1
        return sink(sys.getrecursionlimit() - depth - margin)
    def sink(left):
        return future.result() if left <= 0 else sink(left - 1)
    try:
        down()
    except RecursionError:
        pass
    return future.result()

def do_unsent(error):
    from skyward._core import wire
    from skyward._nested import channel
    encode, left = channel._encode, [1]
    def fail(head):
        if head[0] == wire.HELPED and left:
            left.pop()
            raise {"memory": MemoryError, "timer": TimeoutError}[error]
        return encode(head)
    channel._encode = fail
    future = sky.submit(double, 4)
    try:
        return future.result()
    except (MemoryError, TimeoutError):
        return future.result()

def do_timer_of_a_help():
    handler = signal.getsignal(signal.SIGALRM)
    future = sky.submit(set_timer, 0.2)
    value = future.result()
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        time.sleep(0.01)
    return [value, signal.getsignal(signal.SIGALRM) == handler]

def do_late_disarm():
    """The timer that a helped call has left fires at the last moment."""
    from skyward._nested import helping
    class Signals:
        ITIMER_REAL, getitimer = signal.ITIMER_REAL, signal.getitimer
        left = [1]
        def setitimer(self, which, seconds, interval=0.0):
            if self.left and signal.getitimer(which)[0]:
                self.left.pop()
                time.sleep(0.5)
            return signal.setitimer(which, seconds, interval)
    future = sky.submit(set_timer, 0.2)
    helping.signal = Signals()
    return future.result()

class Late:
    """A handler that is an object."""
    def __call__(self, *_):
        raise TimeoutError("the timer of the payload")

def late(*_):
    raise TimeoutError("the timer of the payload")

HANDLERS = {"function": late, "partial": functools.partial(late, 1), "object": Late(), "method": Late().__call__}

def slow():
    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    return Slow()

def do_timer_in_a_pickle(handler, put):
    # An import, which the first call makes, runs callbacks of weak references: Python drops what a
    # handler raises there.
    sky.put(0)
    signal.signal(signal.SIGALRM, HANDLERS[handler])
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        sky.put(Slow()) if put else sky.submit(double, Slow())
    except TimeoutError as error:
        return str(error)

def do_result_of_a_call():
    try:
        sky.submit(slow).result()
    except Exception as error:
        return f"{type(error).__name__}: {error}"

class Odd:
    tries = 0
    def __reduce__(self):
        Odd.tries += 1
        raise ValueError("odd")

def do_odd():
    try:
        sky.submit(double, number=[Odd()])
    except sky.CallError as error:
        return [str(error), Odd.tries]

def do_submit_again():
    """A handler raises in `submit` after the message is kept."""
    from skyward._nested.start import current
    hub = current()
    while not hub.channel._greeted:
        time.sleep(0.001)
    write, left = hub.channel._write, [1]
    def fail(parts):
        write(parts)
        if left:
            left.pop()
            raise TimeoutError
    hub.channel._write = fail
    try:
        sky.submit(double, 3)
    except TimeoutError:
        return sky.submit(double, 4).result()

def do_no_memory_to_write():
    """Memory runs out in `submit` after the message is kept."""
    from skyward._nested.start import current
    hub = current()
    while not hub.channel._greeted:
        time.sleep(0.001)
    write, left = hub.channel._write, [1]
    def fail(parts):
        if left:
            left.pop()
            raise MemoryError
        write(parts)
    hub.channel._write = fail
    return sky.submit(double, 4).result()

def total(array):
    return float(array.sum())

def do_every_place_in_the_store(kind):
    """A timer of the payload fires at each place, while a call with a large array is submitted."""
    import numpy as np
    from skyward._calls import hashing
    hashing._PIECE = 1 << 14  # so that several threads hash
    kind = getattr(builtins, kind)
    def late(*_):
        raise kind("the timer of the payload")
    signal.signal(signal.SIGALRM, late)
    sky.submit(double, 1)
    place, reached, lost = 0, True, []
    while reached:
        place, count, reached, where = place + 1, 0, False, ""

        def watch(frame, event, argument):
            nonlocal count, reached, where
            if event in ("call", "c_return") and frame.f_code.co_filename.split("/")[-2:-1] in (["_calls"], ["_nested"]):
                count += 1
                if count == place:
                    reached = True
                    name = getattr(argument, "__name__", "")
                    where = f"{frame.f_code.co_filename}:{frame.f_lineno} {event} {name}"
                    os.kill(os.getpid(), signal.SIGALRM)

        array, future = np.full(50_000, float(place)), None
        try:
            sys.setprofile(watch)
            future = sky.submit(total, array)
            sys.setprofile(None)
            if reached:
                lost.append(where)
        except kind as error:
            assert "the timer of the payload" in str(error), repr(error)
        finally:
            sys.setprofile(None)
        if future is not None:
            assert future.result() == 50_000.0 * place, where
        assert not sky._core.state.worker.hub.lost, where
    return [place, lost]

def do_timer_at(where):
    """A timer of the payload fires in one function."""
    import numpy as np
    from skyward._nested import start
    from skyward._calls import store
    signal.signal(signal.SIGALRM, late)
    def fire(*_):
        os.kill(os.getpid(), signal.SIGALRM)
    class Fires:
        send = fire
    if where == "begin":
        start.Hub = fire
    future = sky.submit(total, np.ones(50_000)) if where != "begin" else None
    try:
        if where == "begin":
            sky.submit(double, 1)
        elif where == "load":
            store.Store.load = fire
            future.result()
        elif where == "nudge":
            channel = sky._core.state.worker.hub.channel
            nudging, channel._nudging = channel._nudging, Fires()
            try:
                channel.nudge()
            finally:
                channel._nudging = nudging
                future.result()
    except Exception as error:
        return repr(error)

def do_every_place():
    """A timer of the payload fires at each place in the package, one after the other.

    Python runs handlers where a function begins and where a built-in function has returned.
    """
    signal.signal(signal.SIGALRM, late)
    place, reached, raised = 0, True, 0
    while reached:
        place, count, reached = place + 1, 0, False

        def watch(frame, event, _):
            nonlocal count, reached
            if event in ("call", "c_return") and frame.f_code.co_filename.split("/")[-2:-1] in (["_calls"], ["_nested"]):
                count += 1
                if count == place:
                    reached = True
                    os.kill(os.getpid(), signal.SIGALRM)

        future = sky.submit(double, place)
        hub = sky._core.state.worker.hub
        try:
            sys.setprofile(watch)
            future.result()
        except TimeoutError as error:
            assert str(error) == "the timer of the payload", repr(error)
            raised += 1
        except sky.CallError as error:
            # The timer has fired in the helped call.
            assert any(part in str(error) for part in ("signal handler", "the timer", "TimeoutError")), error
            raised += 1
        finally:
            sys.setprofile(None)
        assert not hub.lock._is_owned(), place
        assert len(hub.stack) == 1 and not hub.helps and hub.main_wait is None, place
        assert sky.submit(double, place).result() == 2 * place, place
    return [place, raised]
'''


class OneAnswer(Pool):
    """Records each answer of a helped call, and connects again when a connection ends."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.answered: list[int] = []

    def _read(self, calls: CallsClient) -> None:
        try:
            calls.read()
        except (EOFError, ConnectionError):
            # If this connection ends too, the next read finds it.
            with suppress(EOFError, ConnectionError):
                calls.connect()
        answers = (wire.HELPED, wire.HELP_FAILED, wire.REFUSE)
        self.answered.extend(head[2] for head, _ in calls.unread if head[0] in answers)


@pytest.mark.parametrize("margin", range(2, 20))
def test_a_wait_that_found_no_stack_does_not_silence_the_calls(node: Node, margin: int) -> None:
    caller = Caller(node, PAYLOAD, what="deep", margin=margin)
    calls, worker = caller.calls, caller.worker.socket
    call, waits = 0, False
    end = monotonic() + DEADLINE
    while True:
        # Like the client, connect again whenever the connection ends, also after the answer.
        try:
            if calls.frames is None:
                calls.connect()
            assert calls.frames is not None
            ready = select.select([worker, calls.frames.socket], [], [], DEADLINE)[0]
            assert ready
            assert monotonic() < end
            if worker in ready and not caller.worker.quiet(0):
                break
            calls.read()
            for head, _ in calls.unread:
                call = call or (head[2] if head[0] == wire.SUBMIT else 0)
                waits = head[0] == wire.WAIT
            if waits and call > 0:
                call = -call
                caller.answer(-call, SEVEN)
        except (EOFError, ConnectionError):
            calls.cut()
    assert caller.value() == 7


@pytest.mark.parametrize("error", ["memory", "timer"])
def test_a_help_whose_answer_cannot_be_sent_fails_and_no_other_help_does(node: Node, error: str) -> None:
    caller = Caller(node, PAYLOAD, what="unsent", error=error)
    call, _, body = caller.submitted()
    caller.waits()
    caller.help(1, body)
    caller.help(2, body)
    try:
        assert caller.help_failed(1)["kind"] == "encode"
    except (EOFError, ConnectionError):
        caller.calls.connect()
        assert caller.help_failed(1)["kind"] == "encode"
    caller.answer(call, SEVEN)
    assert caller.value() == 7
    failed = [head[2] for head, _ in caller.calls.unread if head[0] == wire.HELP_FAILED]
    assert failed == []


def test_a_timer_that_a_helped_call_has_left_does_not_fire_in_its_caller(node: Node) -> None:
    caller = Caller(node, PAYLOAD, what="timer_of_a_help")
    call, _, body = caller.submitted()
    caller.waits()
    caller.help(1, body)
    caller.answer(call, caller.helped(1))
    assert caller.value() == [4, True]


def test_a_timer_that_fires_while_its_helped_call_ends_belongs_to_that_call(node: Node) -> None:
    caller = Caller(node, PAYLOAD, what="late_disarm")
    call, _, body = caller.submitted()
    caller.waits()
    caller.help(1, body)
    error = unpack(caller.helped(1))[1]
    assert str(error) == "the timer of the helped call"
    caller.answer(call, SEVEN)
    assert caller.value() == 7


@pytest.mark.parametrize("put", [False, True])
@pytest.mark.parametrize("handler", ["function", "partial", "object", "method"])
def test_a_timer_of_the_payload_ends_the_pickling_of_a_call(node: Node, handler: str, put: bool) -> None:
    worker = node.ready(PAYLOAD)
    worker.gang = None
    run = worker.start(1, what="timer_in_a_pickle", handler=handler, put=put)
    assert worker.outcome(run)[1] == "the timer of the payload"


def test_a_timer_of_a_call_ends_the_pickling_of_its_result(node: Node) -> None:
    pool = Pool(node, 2, PAYLOAD)
    assert pool.call(what="result_of_a_call") == "TimeoutError: the timer of the payload"


def test_an_error_of_a_reducer_is_not_repeated_with_another_pickler(node: Node) -> None:
    worker = node.ready(PAYLOAD)
    worker.gang = None
    text, tries = worker.outcome(worker.start(1, what="odd"))[1]
    assert "argument `number` of double, a list, cannot be pickled: odd" in text
    # Once for the call, and once to name the argument.
    assert tries == 2


def test_a_call_whose_submit_raises_is_cancelled(node: Node) -> None:
    caller = Caller(node, PAYLOAD, what="submit_again")
    calls = caller.calls
    try:
        dropped = calls.expect(wire.DROP)[0][2]
    except (EOFError, ConnectionError):
        calls.connect()
        dropped = calls.expect(wire.DROP)[0][2]
    heads = [caller.submitted()[0] for _ in range(2)]
    assert dropped == heads[0]
    caller.fail(heads[0], "cancelled")
    caller.answer(heads[1], SEVEN)
    assert caller.value() == 7


def test_a_call_that_is_kept_is_submitted_although_memory_runs_out(node: Node) -> None:
    caller = Caller(node, PAYLOAD, what="no_memory_to_write")
    try:
        call = caller.submitted()[0]
    except (EOFError, ConnectionError):
        caller.calls.connect()
        call = caller.submitted()[0]
    caller.answer(call, SEVEN)
    assert caller.value() == 7


def test_a_timer_that_fires_at_any_place_leaves_each_help_one_answer(node: Node) -> None:
    pool = OneAnswer(node, 1, PAYLOAD)
    task = pool.start(0, what="every_place")
    ok, value = pool.outcome(task, 100)
    assert ok, value["traceback"] if isinstance(value, dict) else value
    places, raised = value
    assert places > 50
    assert raised > 50
    pool.settle()
    assert sorted(pool.answered) == list(range(1, len(pool.answered) + 1))


@pytest.mark.parametrize("kind", ["TimeoutError", "RuntimeError", "IndexError"])
def test_no_exception_of_a_timer_is_lost_while_an_array_is_stored(node: Node, kind: str) -> None:
    pool = OneAnswer(node, 1, PAYLOAD)
    ok, value = pool.outcome(pool.start(0, what="every_place_in_the_store", kind=kind), 100)
    assert ok, value["traceback"] if isinstance(value, dict) else value
    places, lost = value
    assert places > 100, places
    assert lost == []
    pool.settle()


@pytest.mark.parametrize("where", ["begin", "nudge", "load"])
def test_the_exception_of_a_timer_is_not_mistaken_for_one_of_the_system(node: Node, where: str) -> None:
    pool = OneAnswer(node, 1, PAYLOAD)
    said = pool.call(what="timer_at", where=where)
    assert "the timer of the payload" in said
    assert "TimeoutError" in said
    assert "cannot" not in said


def test_a_loop_without_a_task_is_hidden_from_a_helped_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """A callback of a loop has no current task, and then Python 3.12 cannot swap it."""
    tasks: Any = asyncio.tasks
    running: Any = tasks._current_tasks

    def swap(loop: Any, task: Any) -> Any:
        before = running.get(loop)
        if task is None:
            del running[loop]
        else:
            running[loop] = task
        return before

    if not hasattr(tasks, "_swap_current_task"):
        monkeypatch.setattr(tasks, "_swap_current_task", swap, raising=False)
    found: list[Any] = []

    def help() -> None:
        with NoLoop():
            found.append(asyncio.run(asyncio.sleep(0, "helped")))
        found.append(asyncio.get_running_loop() is loop)

    async def call_back() -> None:
        loop.call_soon(help)
        await asyncio.sleep(0)
        help()
        found.append(asyncio.current_task() is not None)

    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(call_back())
    finally:
        loop.close()
    assert found == ["helped", True, "helped", True, True]
