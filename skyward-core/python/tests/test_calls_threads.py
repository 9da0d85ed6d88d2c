"""Calls beside threads, timers, locks and limited memory of their process."""

from __future__ import annotations

from typing import Any

import pytest

from skyward._calls.answers import unpack
from skyward._core import wire
from skyward._nested import mapping
from skyward._nested.awaiting import Awaiting
from skyward._nested.mapping import Mapping

from .caller import Caller
from .conftest import Node
from .pool import Pool

SEVEN = b"\0\x80\x05K\x07."
ROOM = 1 << 20
SIZE = 300_000

PAYLOAD = """
import concurrent.futures
import contextlib
import signal
import threading
import time

import skyward as sky

class Alarm(Exception):
    pass

def double(number):
    return 2 * number

def slow(seconds):
    time.sleep(seconds)
    return "slept"

def main(what, **more):
    return globals()["do_" + what](**more)

def do_begin(calls):
    if calls:
        sky.submit(double, 1).result()
    threading.go, threading.said = threading.Event(), []
    def late():
        threading.go.wait(20)
        try:
            sky.submit(double, 5)
        except sky.CallError as error:
            threading.said.append(str(error))
    threading.late = threading.Thread(target=late)
    threading.late.start()
    threading.executor = concurrent.futures.ThreadPoolExecutor(1)
    return threading.executor.submit(double, 1).result()

def do_go_on():
    own = []
    thread = threading.Thread(target=lambda: own.append(sky.submit(double, 3).result()))
    thread.start()
    threading.go.set()
    threading.late.join(20)
    thread.join(20)
    return [threading.said, threading.executor.submit(lambda: sky.submit(double, 4).result()).result(), own]

def do_alarm(seconds, interval):
    rung = []
    def ring(*_):
        rung.append(1)
        if len(rung) == 1:
            raise Alarm
    signal.signal(signal.SIGALRM, ring)
    future = sky.submit(slow, 4 * seconds)
    signal.setitimer(signal.ITIMER_REAL, seconds, interval)
    try:
        future.result()
    except Alarm:
        while interval and len(rung) < 2:
            time.sleep(0.001)
        return ["alarm", len(rung), len(future._awaited)]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)

def do_locked():
    first, second, told = sky.submit(double, 1), sky.submit(double, 2), threading.Event()
    first.add_done_callback(lambda future: told.set())
    with first._condition:
        value = second.result(60)
        found = [value, first.result(60), told.is_set()]
    return [*found, told.wait(60), concurrent.futures.wait([first], 60).not_done == set()]

def do_many_locked(count):
    # As an interrupt within `concurrent.futures.wait` leaves them.
    futures = [sky.submit(double, number) for number in range(count)]
    with contextlib.ExitStack() as held:
        for future in futures[:-1]:
            held.enter_context(future._condition)
        began = time.monotonic()
        return [futures[-1].result(60), time.monotonic() - began < 30]

def do_restarted():
    first, second = sky.submit(double, 1), sky.submit(double, 2)
    for _ in range(5):
        try:
            list(sky.as_completed([first, second], timeout=0.01))
        except TimeoutError:
            pass
    for future in sky.as_completed([first, second]):
        break
    return [future is first, len(first._awaited), len(second._awaited)]

def do_flood(count, size):
    data = bytes(size)
    for _ in range(count):
        sky.submit(len, data)
    return "submitted"

def do_flood_of_callbacks(count, size):
    said = []
    def flood(_):
        try:
            do_flood(count, size)
        except sky.CallError as error:
            said.append(str(error))
        finally:
            said.append("over")
    future = sky.submit(double, 1)
    future.add_done_callback(flood)
    future.result()
    while "over" not in said:
        time.sleep(0.001)
    return said
"""


@pytest.mark.parametrize("calls", [True, False])
def test_a_thread_of_an_ended_run_cannot_submit_calls_for_the_next_run(node: Node, calls: bool) -> None:
    pool = Pool(node, 1, PAYLOAD)
    assert pool.call(what="begin", calls=calls) == 2
    said, by_pool, own = pool.call(what="go_on")
    assert by_pool == 8, "an idle thread of a pool is the next run's"
    assert own == [6]
    assert len(said) == 1
    assert "`late`" in said[0]
    assert "run that has ended" in said[0]


@pytest.mark.parametrize("interval", [0, 0.01])
def test_a_timer_of_the_caller_fires_in_its_wait_and_not_in_a_helped_call(node: Node, interval: float) -> None:
    caller = Caller(node, PAYLOAD, what="alarm", seconds=0.1, interval=interval)
    _, _, body = caller.submitted()
    caller.waits()
    caller.help(1, body)
    assert unpack(caller.helped(1)) == ("slept", None)
    caller.calls.expect(wire.WAITED)
    assert caller.value() == ["alarm", 2 if interval else 1, 0]


def test_a_future_whose_lock_is_held_does_not_block_others(node: Node) -> None:
    caller = Caller(node, PAYLOAD, what="locked")
    for _ in range(2):
        call, _, _ = caller.submitted()
        caller.answer(call, SEVEN)
    assert caller.value() == [7, 7, False, True, True]


def test_many_held_locks_cost_no_more_time_than_one(node: Node) -> None:
    count = 30
    caller = Caller(node, PAYLOAD, what="many_locked", count=count)
    for _ in range(count):
        call, _, _ = caller.submitted()
        caller.answer(call, SEVEN)
    assert caller.value() == [7, True]


def test_abandoned_waits_are_removed_from_their_futures(node: Node) -> None:
    caller = Caller(node, PAYLOAD, what="restarted")
    call, _, _ = caller.submitted()
    caller.submitted()
    # The client does not know of the waits with a deadline.
    caller.waits()
    caller.answer(call, SEVEN)
    assert caller.value() == [True, 0, 0]


def test_submit_waits_while_too_many_bytes_are_unacknowledged(node: Node) -> None:
    caller = Caller(node, PAYLOAD, spec={"retain_bytes": ROOM}, what="flood", count=8, size=SIZE)
    fitting = ROOM // SIZE
    for received in range(0, 8, fitting):
        for _ in range(min(fitting, 8 - received)):
            caller.submitted()
        if received + fitting < 8:
            assert caller.calls.quiet()
        caller.calls.acknowledge()
    assert caller.value() == "submitted"


def test_a_submit_that_waits_for_the_client_is_cancelled(node: Node) -> None:
    caller = Caller(node, PAYLOAD, spec={"retain_bytes": ROOM}, what="flood", count=8, size=SIZE)
    for _ in range(ROOM // SIZE):
        caller.submitted()
    assert caller.calls.quiet()
    caller.calls.cut()
    caller.cancel()
    assert caller.failure()["kind"] == "cancelled"


def test_one_call_may_be_larger_than_the_bound(node: Node) -> None:
    caller = Caller(node, PAYLOAD, spec={"retain_bytes": ROOM}, what="flood", count=2, size=3 * ROOM)
    caller.submitted()
    assert caller.calls.quiet()
    caller.calls.acknowledge()
    caller.submitted()
    assert caller.value() == "submitted"


def test_a_callback_that_would_have_to_wait_raises(node: Node) -> None:
    caller = Caller(node, PAYLOAD, spec={"retain_bytes": ROOM}, what="flood_of_callbacks", count=20, size=SIZE)
    call, _, _ = caller.submitted()
    caller.answer(call, SEVEN)
    said = caller.value()
    assert "a callback cannot wait" in said[0]
    assert said[1] == "over"
    for _ in range(2 * ROOM // SIZE):
        caller.submitted()
    assert not [head for head, _ in caller.calls.unread if head[0] == wire.SUBMIT]


class Compared:
    """An object in the place of a future, which counts how often it is compared."""

    count = 0
    micros = 1

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def __eq__(self, other: object) -> bool:
        type(self).count += 1
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def result(self) -> Any:
        return [0], None

    def cancel(self) -> bool:
        return True


class Hub:
    """A hub whose latest call ends first."""

    def __init__(self) -> None:
        self.waiting: list[Compared] = []

    def await_all(self, awaiting: Awaiting[Compared], futures: tuple[Compared, ...]) -> None:
        self.waiting.extend(futures)

    def wait(self, awaiting: Awaiting[Compared], futures: tuple[()], timeout: None) -> None:
        awaiting.done.append(self.waiting.pop())


def test_a_large_window_is_not_searched_for_each_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapping, "for_calls", Hub.wait)
    hub, count = Hub(), 2_000
    submit: Any = lambda *_: (Compared(hub), 1)  # noqa: E731
    results = Mapping(submit, abs, [range(count)], 1, count, False)
    assert len(list(results)) == count
    assert Compared.count < 10 * count
