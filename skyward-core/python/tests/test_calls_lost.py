"""No call is lost, doubled or run in the wrong place, whatever fails and whichever client connects."""

from __future__ import annotations

from pathlib import Path

import pytest

from skyward._calls.answers import unpack
from skyward._core import wire

from .caller import Caller, until
from .client import Frames
from .conftest import Node

SEVEN = b"\0\x80\x05K\x07."

PAYLOAD = '''
import threading
import time

import skyward as sky

def double(number):
    return 2 * number

def parent(number):
    return sky.submit(double, number).result()

def main(what, **more):
    return globals()["do_" + what](**more)

def do_one(timeout=None):
    return sky.submit(double, 4).result(timeout)

def do_other_thread(timeout):
    future, found = sky.submit(double, 4), []
    thread = threading.Thread(target=lambda: found.append(future.result(timeout)))
    thread.start()
    thread.join(20)
    return found

def do_nested():
    return sky.submit(parent, 4).result()

def failing(function, calls):
    """Raises for the first calls of a function."""
    def fail(*args, **kwargs):
        if len(calls) < 1:
            calls.append(1)
            raise MemoryError
        return function(*args, **kwargs)
    return fail

def do_fails(where, folder):
    from skyward._nested import serving
    calls, told = [], []
    future = sky.submit(double, 4)
    future.add_done_callback(told.append)
    hub = sky._core.state.worker.hub
    if where == "handle":
        hub.channel._handle = failing(hub.channel._handle, calls)
    elif where == "failure":
        serving._failure_of = failing(serving._failure_of, calls)
    elif where == "settle":
        sky.Future.set_result = failing(sky.Future.set_result, calls)
    elif where == "complete":
        hub.complete = failing(hub.complete, calls)
    elif where == "thread":
        threading.Thread.start = failing(threading.Thread.start, calls)
    open(folder + "/ready", "w").close()
    if where == "thread":
        while not future.done():
            time.sleep(0.001)
    try:
        value = future.result(60)
    except sky.WorkerLost as error:
        value = str(error)
    while len(told) < 1:
        time.sleep(0.001)
    return [value, len(calls), len(told)]

def do_no_room():
    from skyward._nested import helping
    future = sky.submit(double, 4)
    helping.Call = failing(helping.Call, [])
    try:
        future.result()
    except MemoryError:
        return future.result()

def do_slow_to_go_on():
    """What helps goes on late after it has answered."""
    future = sky.submit(double, 4)
    hub = sky._core.state.worker.hub
    end_frame = hub.end_frame
    def end_frame_slowly(*args, **kwargs):
        end_frame(*args, **kwargs)
        time.sleep(0.3)
    hub.end_frame = end_frame_slowly
    return future.result()
'''


def test_a_help_for_a_wait_that_has_ended_does_not_run_in_the_one_around_it(node: Node) -> None:
    caller = Caller(node, PAYLOAD, what="nested")
    call, _, outer = caller.submitted()
    caller.waits()
    caller.help(1, outer)
    inner_call, _, inner = caller.submitted()
    caller.waits(1)
    caller.answer(inner_call, SEVEN)
    answer = caller.helped(1)
    # The client does not know this yet, and chooses the inner wait.
    caller.help(2, inner, depth=2, within=1)
    assert caller.calls.expect(wire.REFUSE)[0][2] == 2
    caller.help(3, inner, depth=2)
    caller.helped(3)
    caller.answer(call, answer)
    assert caller.value() == 7


def test_a_help_that_comes_right_after_an_answer_is_not_refused(node: Node) -> None:
    caller = Caller(node, PAYLOAD, what="slow_to_go_on")
    call, _, body = caller.submitted()
    caller.waits()
    for number in (1, 2):
        caller.help(number, body)
        caller.helped(number)
    caller.answer(call, SEVEN)
    assert caller.value() == 7


def test_a_helped_call_without_room_on_the_stack_is_answered(node: Node) -> None:
    caller = Caller(node, PAYLOAD, what="no_room")
    call, _, body = caller.submitted()
    caller.waits()
    caller.help(1, body)
    assert caller.help_failed(1)["kind"] == "encode"
    caller.waits()
    caller.answer(call, SEVEN)
    assert caller.value() == 7


@pytest.mark.parametrize("where", ["handle", "failure", "settle", "complete", "thread"])
def test_a_message_that_could_not_be_handled_comes_again_and_counts_once(
    node: Node, tmp_path: Path, where: str
) -> None:
    caller = Caller(node, PAYLOAD, what="fails", where=where, folder=str(tmp_path))
    call, _, body = caller.submitted()
    until((tmp_path / "ready").exists)
    value: object = 7
    if where == "failure":
        value = "it was lost"
        caller.fail(call, "lost")
    elif where == "thread":
        caller.help(1, body, aside=True)
    else:
        caller.answer(call, SEVEN)
    frames = caller.calls.frames
    assert frames is not None
    if where in ("handle", "failure", "thread"):
        while not frames.at_end():
            pass
        caller.calls.connect()
    if where == "thread":
        assert unpack(caller.helped(1)) == (8, None)
        assert not [head for head, _ in caller.calls.unread if head[0] in (wire.HELPED, wire.HELP_FAILED)]
        caller.answer(call, SEVEN)
    assert caller.value() == [value, 1, 1]


def test_a_client_that_lacks_acknowledged_messages_is_refused(node: Node) -> None:
    caller = Caller(node, PAYLOAD, what="one")
    call, _, body = caller.submitted()
    caller.waits()
    caller.calls.acknowledge()
    caller.help(1, body)
    answer = caller.helped(1)
    # This client has replaced one that was killed, so nobody has the messages that the first has
    # acknowledged.
    second = Frames(caller.told[4])
    second.send([wire.CALLS_ATTACH, wire.PROTOCOL, 1, 0])
    head, _ = second.receive()
    assert head[:2] == [wire.ERROR, wire.CALLS_ATTACH]
    assert "end the worker" in head[2]
    assert second.at_end()
    caller.calls.connect()
    caller.answer(call, answer)
    assert caller.value() == 8


@pytest.mark.parametrize(("what", "value"), [("one", 7), ("other_thread", [7])])
def test_a_timeout_beyond_the_range_of_the_clock_means_no_timeout(node: Node, what: str, value: object) -> None:
    caller = Caller(node, PAYLOAD, what=what, timeout=1e12)
    call, _, _ = caller.submitted()
    if what == "one":
        caller.waits()
    caller.answer(call, SEVEN)
    assert caller.value() == value
