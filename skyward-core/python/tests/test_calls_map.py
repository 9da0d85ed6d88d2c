"""`sky.map`: how many calls run at a time, the sizes of batches, and what ends the iterator."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from skyward._calls.answers import pack_error, unpack
from skyward._calls.pickles import dumps, loads
from skyward._core import wire

from .client import CallsClient
from .conftest import Node
from .pool import Pool

PAYLOAD = """
import asyncio
import threading
import time

import skyward as sky

def double(number):
    return 2 * number

async def slowly(number):
    await asyncio.sleep(0)
    return 2 * number

def locked(number):
    return threading.Lock() if number == 3 else number

def third(number):
    if number == 3:
        raise ValueError("three")
    return number

def stops(number):
    raise StopIteration

def take(number, seconds):
    time.sleep(seconds)
    return number

def main(what, **more):
    return globals()["do_" + what](**more)

def do_map(count, **more):
    return list(sky.map(double, range(count), **more))

def do_lengths(count):
    return [len(result) for result in sky.map(double, range(count)) if result]

def do_uneven(count, size):
    items = [b""] * count + [bytes([number]) * size for number in range(4)]
    return list(sky.map(len, items))

def do_too_large(broken):
    found = []
    def items():
        yield from [b""] * 62
        yield bytes(20_000)
        yield b""
        if broken:
            raise ValueError("no more")
    try:
        for length in sky.map(len, items()):
            found.append(length)
    except sky.CallError as error:
        return [len(found), str(error)]

def do_first(count, **more):
    taken = []
    def numbers():
        for number in range(count):
            taken.append(number)
            yield number
    results = sky.map(double, numbers(), **more)
    found = next(results)
    results.close()
    assert next(results, None) is None
    return [found, len(taken)]

def do_forgotten(count):
    results = sky.map(double, range(count))
    first = next(results)
    del results
    return [first, sky.submit(double, 100).result()]

def do_third(**more):
    found = []
    results = sky.map(third, range(100), **more)
    try:
        for result in results:
            found.append(result)
    except ValueError as error:
        return [found, str(error), "in third" in str(error.__cause__), next(results, None)]

def do_broken():
    def numbers():
        yield 1
        yield 2
        raise ValueError("no more")
    found = []
    try:
        for number in sky.map(double, numbers(), chunksize=5):
            found.append(number)
    except ValueError as error:
        return [found, str(error)]

def do_stops():
    try:
        return list(sky.map(stops, range(3)))
    except RuntimeError as error:
        return str(error)

def do_unpicklable():
    try:
        sky.map(double, [1, threading.Lock()], chunksize=5)
    except sky.CallError as error:
        return str(error)

def do_locked(**more):
    found = []
    try:
        for result in sky.map(locked, range(100), **more):
            found.append(result)
    except sky.CallError as error:
        return [found, str(error)]

def do_coroutines():
    return list(sky.map(slowly, range(20)))

def do_any_order():
    return list(sky.map(take, [1, 2, 3], [1.0, 0.0, 0.0], ordered=False, chunksize=1))

def do_timeout():
    return list(sky.options(timeout=60).map(double, range(20)))
"""


@pytest.fixture
def make_pool(node: Node) -> Callable[..., Pool]:
    def make(workers: int = 1) -> Pool:
        return Pool(node, workers, PAYLOAD)

    return make


class Mapped:
    """A worker that runs `sky.map`, and whose calls the test answers."""

    def __init__(self, node: Node, **arguments: Any) -> None:
        self.worker = node.ready(PAYLOAD)
        self.worker.gang = None
        self.run = self.worker.start(1, **arguments)
        self.calls = CallsClient(node.agent.expect(wire.CALLS)[0][4])
        self.sizes: list[int] = []
        self.outstanding: list[tuple[int, bytes]] = []

    def take_in(self, count: int) -> None:
        for _ in range(count):
            head, body = self.calls.expect(wire.SUBMIT)
            self.outstanding.append((head[2], body))
            self.sizes.append(len(self.items(body)))

    @staticmethod
    def items(body: bytes) -> list[Any]:
        # The body cannot be unpickled here, because its function belongs to a payload.
        return re.findall(rb"K.\x85", body, re.DOTALL)

    def answer(self, micros: int, result: Any = 0) -> None:
        """Answer the call that has waited longest."""
        call, body = self.outstanding.pop(0)
        count = len(self.items(body))
        self.calls.send(wire.OUTCOME, call, True, micros, body=bytes(dumps(([result] * count, None), b"\0")))

    def idle(self) -> bool:
        """Return whether no further call is submitted."""
        while not self.calls.quiet(0.1):
            if any(head[0] == wire.SUBMIT for head, _ in self.calls.unread):
                return False
            self.calls.unread.clear()
        return True


def test_few_calls_run_at_a_time_and_short_ones_are_batched(node: Node) -> None:
    mapped = Mapped(node, what="map", count=250)
    # For one worker, four calls: two at a time, and two more in advance.
    mapped.take_in(4)
    assert mapped.idle()
    assert mapped.sizes == [1, 1, 1, 1]
    mapped.answer(100)
    mapped.take_in(1)
    assert mapped.sizes[4:] == [8]
    for _ in range(3):
        mapped.answer(100)
    mapped.take_in(3)
    for _ in range(4):
        mapped.answer(800)
    # Two batches of the largest allowed growth, and then the remaining items.
    mapped.take_in(4)
    assert mapped.sizes[8:10] == [64, 64]
    assert sum(mapped.sizes) == 250
    while mapped.outstanding:
        mapped.answer(6400)
    assert len(mapped.worker.outcome(mapped.run)[1]) == 250


def test_batches_stay_small_where_calls_take_long(node: Node) -> None:
    mapped = Mapped(node, what="map", count=12)
    mapped.take_in(4)
    for _ in range(8):
        mapped.answer(30_000)
        mapped.take_in(1)
    assert mapped.sizes == [1] * 12
    while mapped.outstanding:
        mapped.answer(30_000)
    assert mapped.worker.outcome(mapped.run)[1] == [0] * 12


def test_batches_stay_small_where_results_are_large(node: Node) -> None:
    mapped = Mapped(node, what="lengths", count=20)
    mapped.take_in(4)
    # Two results fit into a batch.
    for _ in range(4):
        mapped.answer(10, "x" * (1 << 19))
        mapped.take_in(1)
    assert mapped.sizes[4:] == [1] * 4
    while mapped.outstanding:
        mapped.answer(10)
        if sum(mapped.sizes) < 20:
            mapped.take_in(1)
    assert sum(mapped.worker.outcome(mapped.run)[1]) == 4 << 19


def test_items_that_are_too_large_together_are_sent_apart(node: Node) -> None:
    worker = node.ready(PAYLOAD, max_frame_bytes=10_000)
    worker.gang = None
    run = worker.start(1, what="uneven", count=100, size=6000)
    calls = CallsClient(node.agent.expect(wire.CALLS)[0][4])
    sizes: list[int] = []
    while sum(sizes) < 104:
        head, body = calls.expect(wire.SUBMIT)
        batch, arguments, *_ = loads(body)
        results = batch(*arguments)
        sizes.append(len(results[0]))
        calls.send(wire.OUTCOME, head[2], True, 1, body=bytes(dumps(results, b"\0")))
    assert max(sizes) > 8
    assert worker.outcome(run)[1] == [0] * 100 + [6000] * 4


@pytest.mark.parametrize("broken", [False, True])
def test_an_item_that_is_too_large_alone_is_an_error_after_the_results_before(node: Node, broken: bool) -> None:
    pool = Pool(node, 1, PAYLOAD, max_frame_bytes=10_000)
    found, text = pool.call(what="too_large", broken=broken)
    assert found == 62
    assert text.startswith("the call of len has 20"), text


def test_the_window_counts_items(node: Node) -> None:
    mapped = Mapped(node, what="map", count=40, window=6, chunksize=2)
    mapped.take_in(3)
    assert mapped.idle()
    mapped.answer(1)
    mapped.take_in(1)
    assert mapped.idle()
    assert mapped.sizes == [2, 2, 2, 2]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("more", [{}, {"chunksize": 7}, {"window": 3}, {"chunksize": 5, "window": 12}])
def test_items_keep_their_order(make_pool: Callable[..., Pool], workers: int, more: dict[str, Any]) -> None:
    assert make_pool(workers).call(what="map", count=500, **more) == [2 * number for number in range(500)]


def test_any_order(make_pool: Callable[..., Pool]) -> None:
    pool = make_pool(2)
    assert sorted(pool.call(what="map", count=500, ordered=False)) == [2 * number for number in range(500)]
    pool.helps_waiting = False
    pool.aside_after = 0.05
    assert pool.call(what="any_order")[-1] == 1


@pytest.mark.parametrize("workers", [1, 2])
def test_closing_or_dropping_an_iterator_cancels_its_calls(make_pool: Callable[..., Pool], workers: int) -> None:
    pool = make_pool(workers)
    found, taken = pool.call(what="first", count=1000, window=10)
    assert found == 0
    assert taken <= 20
    assert pool.call(what="forgotten", count=1000) == [0, 200]
    pool.settle()


@pytest.mark.parametrize("what", ["first", "forgotten"])
def test_cancelled_calls_are_reported_to_the_client(node: Node, what: str) -> None:
    mapped = Mapped(node, what=what, count=1000)
    mapped.take_in(4)
    mapped.answer(30_000)
    dropped = {mapped.calls.expect(wire.DROP)[0][2] for _ in range(3)}
    assert dropped == {2, 3, 4}


@pytest.mark.parametrize("more", [{}, {"chunksize": 1}, {"chunksize": 7}])
def test_an_exception_of_a_call_is_raised_at_its_place(make_pool: Callable[..., Pool], more: dict[str, Any]) -> None:
    assert make_pool(2).call(what="third", **more) == [[0, 1, 2], "three", True, None]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("more", [{}, {"chunksize": 7}])
def test_a_result_that_cannot_be_pickled_is_an_error_at_its_place(
    make_pool: Callable[..., Pool], workers: int, more: dict[str, Any]
) -> None:
    found, text = make_pool(workers).call(what="locked", **more)
    assert found == [0, 1, 2]
    assert text.startswith("locked returned a lock, which cannot be pickled: ")


@pytest.mark.parametrize("workers", [1, 2])
def test_coroutines(make_pool: Callable[..., Pool], workers: int) -> None:
    assert make_pool(workers).call(what="coroutines") == [2 * number for number in range(20)]


def test_an_exception_of_the_items_is_raised_after_their_results(make_pool: Callable[..., Pool]) -> None:
    pool = make_pool()
    assert pool.call(what="broken") == [[2, 4], "no more"]
    assert "StopIteration" in pool.call(what="stops")
    assert "argument 1 of double, a lock, cannot be pickled" in pool.call(what="unpicklable")


def test_a_timeout_is_for_each_item(make_pool: Callable[..., Pool]) -> None:
    pool = make_pool()
    assert pool.call(what="timeout") == [2 * number for number in range(20)]
    assert pool.counts["help"] - pool.counts["refused"] == 20


def test_answers_contain_the_exception() -> None:
    value, error = unpack(pack_error(ValueError("no"))[0])
    assert value is None
    assert repr(error) == "ValueError('no')"
    assert loads(dumps([1, (2,)])) == [1, (2,)]
