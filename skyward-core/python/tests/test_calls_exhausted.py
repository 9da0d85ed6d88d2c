"""Calls of payloads whose memory or stack runs out, or whose timers raise, in the middle of them."""

from __future__ import annotations

import select
from time import monotonic

import pytest

from skyward import _wire

from .caller import Caller
from .client import DEADLINE
from .conftest import Node

SEVEN = b"\0\x80\x05K\x07."

PAYLOAD = '''
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
    while not sky._state.worker.hub.channel._greeted:
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
    from skyward import _wire
    from skyward._calls import channel
    encode, left = channel._encode, [1]
    def fail(head):
        if head[0] == _wire.HELPED and left:
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

def do_timer_in_a_pickle():
    def late(*_):
        raise TimeoutError("the timer of the payload")
    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        sky.submit(double, Slow())
    except TimeoutError as error:
        return str(error)
'''


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
            assert ready and monotonic() < end
            if worker in ready:
                break
            calls.read()
            for head, _ in calls.unread:
                call = call or (head[2] if head[0] == _wire.SUBMIT else 0)
                waits = head[0] == _wire.WAIT
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
    failed = [head[2] for head, _ in caller.calls.unread if head[0] == _wire.HELP_FAILED]
    assert failed == []


def test_a_timer_that_a_helped_call_has_left_does_not_fire_in_its_caller(node: Node) -> None:
    caller = Caller(node, PAYLOAD, what="timer_of_a_help")
    call, _, body = caller.submitted()
    caller.waits()
    caller.help(1, body)
    caller.answer(call, caller.helped(1))
    assert caller.value() == [4, True]


def test_a_timer_of_the_payload_ends_the_pickling_of_a_call(node: Node) -> None:
    worker = node.ready(PAYLOAD)
    worker.gang = None
    run = worker.start(1, what="timer_in_a_pickle")
    assert worker.outcome(run)[1] == "the timer of the payload"
