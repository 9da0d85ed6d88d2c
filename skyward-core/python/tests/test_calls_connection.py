"""A worker's calls connection: reconnects, helped calls and cancels."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from skyward._calls.answers import unpack
from skyward._core import wire

from .caller import Caller as AnyCaller
from .caller import until
from .client import AgentClient, CallsClient, Frames, gone
from .conftest import Node

PAYLOAD = '''
import os
import threading
import time

import skyward as sky

def double(number):
    return 2 * number

def parent(number):
    return sky.submit(double, number).result()

def forever(folder):
    open(folder + "/began", "w").close()
    end = time.monotonic() + 60
    while time.monotonic() < end:
        time.sleep(0.001)

def stubborn(folder):
    try:
        forever(folder)
    except KeyboardInterrupt:
        open(folder + "/swallowed", "w").close()
    return "kept"

def waits(folder, name):
    """Submits a call, and waits for it."""
    future = sky.submit(globals()[name], folder)
    open(folder + "/waits", "w").close()
    try:
        return future.result()
    except BaseException as error:
        open(folder + "/" + type(error).__name__, "w").close()
        raise

def main(what, **more):
    return globals()["do_" + what](**more)

def do_one(number):
    return sky.submit(double, number).result()

LOCKS = {
    "lock": threading.Lock(),
    "rlock": threading.RLock(),
    "condition": threading.Condition(),
    "semaphore": threading.Semaphore(1),
    "bounded": threading.BoundedSemaphore(1),
}
globals().update(LOCKS)

def do_locked(kind):
    with LOCKS[kind]:
        first = sky.submit(double, 4).result()
    return first + sky.submit(double, 4).result()

def do_many(count):
    return [future.result() for future in [sky.submit(double, number) for number in range(count)]]

def do_waits(folder, name):
    return waits(folder, name)

def do_nested(folder, name):
    return sky.submit(waits, folder, name).result()

def do_after(folder, name):
    try:
        sky.submit(globals()[name], folder).result()
    except sky.CallError as error:
        return str(error)
    except BaseException as error:
        return type(error).__name__

def do_aside(folder, name):
    future = sky.submit(globals()[name], folder)
    while not future.done():
        time.sleep(0.001)
    try:
        return future.result()
    except BaseException as error:
        return type(error).__name__

def do_leave(folder, count):
    futures = [sky.submit(double, number) for number in range(count)]
    def wait():
        try:
            futures[-1].result()
        except BaseException as error:
            open(folder + "/" + type(error).__name__, "w").close()
    thread = threading.Thread(target=wait)
    thread.start()
    threading.late = futures, thread
    return "left"

def do_left():
    futures, thread = threading.late
    thread.join(20)
    end = time.monotonic() + 20
    while not all(future.done() for future in futures):
        assert time.monotonic() < end
        time.sleep(0.001)
    return [thread.is_alive(), {future.cancelled() for future in futures} == {True}]

def do_timeout():
    future = sky.submit(double, 1)
    try:
        future.result(timeout=0.05)
    except TimeoutError:
        pass
    assert not future.done()
    assert sky.wait([future], timeout=0.05) == (set(), {future})
    assert future.cancel() and future.cancelled() and future.done()
    assert not future.cancel()
    return "timed out"

def do_deadline(how, folder):
    future, other = sky.submit(double, 4), sky.submit(double, 5)
    try:
        if how == "result":
            future.result(timeout=1)
        elif how == "wait":
            assert sky.wait([future], timeout=1) == (set(), {future})
            raise TimeoutError
        else:
            list(sky.as_completed([future], timeout=1))
    except TimeoutError:
        open(folder + "/over", "w").close()
    return other.result()

def do_close():
    for descriptor in os.listdir("/proc/self/fd"):
        descriptor = int(descriptor)
        try:
            if os.readlink(f"/proc/self/fd/{descriptor}").startswith("socket:"):
                os.close(descriptor)
        except OSError:
            pass

def do_abandoned(folder):
    future = sky.submit(double, 1)
    channel = sky._core.state.worker.hub.channel
    while not channel._greeted:
        time.sleep(0.001)
    with channel._lock:
        # As where a signal handler raises while a message is sent.
        channel._greeted, channel._is_abandoned = False, True
    open(folder + "/abandoned", "w").close()
    while not os.path.exists(folder + "/answered"):
        time.sleep(0.001)
    return future.result()

def do_closed_elsewhere(folder, waits):
    future, other = sky.submit(double, 1), sky.submit(double, 2)
    while not os.path.exists(folder + "/go"):
        time.sleep(0.001)
    os.close(sky._core.state.worker.hub.channel._connection.fileno())
    other.cancel()
    said = "nothing"
    def wait():
        nonlocal said
        try:
            future.result()
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
    if waits:
        thread = threading.Thread(target=wait)
        thread.start()
        thread.join(20)
    with open(folder + "/said", "w") as file:
        file.write(said)

def do_closed(before, folder, all):
    future = sky.submit(double, 1)
    while not os.path.exists(folder + "/go"):
        time.sleep(0.001)
    if before:
        future.result()
    if all:
        do_close()
    else:
        os.close(sky._core.state.worker.hub.channel._connection.fileno())
    try:
        return (sky.submit(double, 2) if before else future).result()
    except sky.CallError as error:
        return str(error)
'''


class Caller(AnyCaller):
    """A caller with the payload of these tests."""

    def __init__(self, node: Node, **arguments: Any) -> None:
        super().__init__(node, PAYLOAD, **arguments)


def test_a_message_to_an_abandoned_connection_is_no_error(node: Node, tmp_path: Path) -> None:
    caller = Caller(node, what="abandoned", folder=str(tmp_path))
    call, _, _ = caller.submitted()
    until((tmp_path / "abandoned").exists)
    caller.answer(call, b"\0\x80\x05K\x09.")
    assert caller.calls.frames is not None
    assert caller.calls.frames.socket.recv(1 << 16) == b""
    (tmp_path / "answered").touch()
    caller.calls.connect()
    assert caller.value() == 9


def test_a_waiting_worker_helps_and_reports_the_end_of_its_wait(node: Node) -> None:
    caller = Caller(node, what="one", number=4)
    assert caller.told[1:4] == [1, 0, node.pid]
    assert caller.calls.hello[1:] == [wire.PROTOCOL, node.pid, 1, 0, 0]
    assert Path(caller.told[4]).stat().st_mode & 0o777 == 0o600
    call, helped, body = caller.submitted()
    assert (call, helped) == (1, 0)
    caller.waits()
    caller.help(3, body)
    answer = caller.helped(3)
    assert unpack(answer) == (8, None)
    # The caller waits again, and helps once more, until it has the outcome.
    caller.help(4, body)
    caller.helped(4)
    caller.answer(call, answer)
    caller.calls.expect(wire.WAITED)
    assert caller.value() == 8
    assert caller.calls.quiet()


def test_the_agent_reports_calls_to_a_new_client(node: Node, folder: Path) -> None:
    caller = Caller(node, what="one", number=4)
    again = AgentClient(folder)
    assert again.expect(wire.CALLS)[0] == caller.told
    call, _, _ = caller.submitted()
    caller.fail(call, "lost")
    caller.failure()
    # After the end of a worker, the agent reports no calls of it.
    os.kill(node.pid, 9)
    assert gone(node.pid)
    again.expect(wire.EXITED)
    third = AgentClient(folder)
    third.expect(wire.EXITED)
    third.send([wire.PING, 1, 60.0])
    third.expect(wire.PONG)
    assert not [head for head, _ in third.seen if head[0] == wire.CALLS]
    assert not Path(caller.told[4]).exists()


@pytest.mark.parametrize("acknowledged", [False, True])
def test_no_message_is_lost_or_doubled_when_a_connection_is_cut(node: Node, acknowledged: bool) -> None:
    count = 20
    caller = Caller(node, what="many", count=count)
    calls = caller.calls
    submitted = []
    for _ in range(count):
        submitted.append(caller.submitted())
        if acknowledged:
            calls.acknowledge()
        calls.cut()
        calls.connect()
    assert [call for call, _, _ in submitted] == [*range(1, count + 1)]
    for call, _, body in submitted:
        caller.waits()
        # A message that is sent without a connection arrives over the next one.
        calls.cut()
        caller.help(call, body)
        calls.connect()
        answer = caller.helped(call)
        calls.cut()
        caller.answer(call, answer)
        calls.connect()
    assert caller.value() == [2 * number for number in range(count)]
    calls.expect(wire.WAITED)


@pytest.mark.parametrize("replaced", [False, True])
def test_a_body_that_is_half_sent_comes_whole_over_the_next_connection(node: Node, replaced: bool) -> None:
    worker = node.ready("""
        import skyward as sky
        def size(data):
            return len(data)
        def main():
            return sky.submit(size, bytes(40 << 20)).result()
    """)
    worker.gang = None
    run = worker.start(1)
    calls = CallsClient(node.agent.expect(wire.CALLS)[0][4])
    assert calls.frames is not None
    # The beginning has arrived, so the worker is in the middle of the frame.
    calls.frames.socket.recv(1000)
    old = calls.frames
    if replaced:
        calls.frames = None
    calls.connect()
    assert not replaced or old.at_end()
    head, body = calls.expect(wire.SUBMIT)
    assert len(body) > 40 << 20
    calls.expect(wire.WAIT)
    calls.send(wire.HELP, 1, run, 0, 1, False, body=body)
    head, answer = calls.expect(wire.HELPED)
    calls.send(wire.OUTCOME, 1, True, head[3], body=answer)
    assert worker.outcome(run)[1] == 40 << 20


def test_numbers_that_are_repeated_are_ignored_and_those_that_skip_end_the_connection(node: Node) -> None:
    caller = Caller(node, what="one", number=4)
    call, _, body = caller.submitted()
    caller.waits()
    frames = caller.calls.frames
    assert frames is not None
    for _ in range(2):
        frames.send([wire.HELP, 1, 1, caller.run, 0, 1, False], body)
    caller.calls.sent = 1
    answer = caller.helped(1)
    assert caller.calls.quiet()
    frames.send([wire.OUTCOME, 3, call, True, 5], answer)
    assert frames.expect(wire.ERROR)[0][1] == wire.OUTCOME
    assert frames.at_end()
    caller.calls.connect()
    caller.answer(call, answer)
    assert caller.value() == 8


@pytest.mark.parametrize(
    "said",
    [
        [wire.CALLS_ATTACH, 1, 1, 0],
        [wire.CALLS_ATTACH, wire.PROTOCOL, 2, 0],
        [wire.CALLS_ATTACH, wire.PROTOCOL, 1, 1000],
        [wire.HELP, 1, 1, 1, 0, 1, False],
        [wire.RUN, 1, 1, 0, 0],
        ["what"],
    ],
)
def test_a_connection_that_breaks_the_protocol_ends_and_another_one_is_served(node: Node, said: list[Any]) -> None:
    caller = Caller(node, what="one", number=4)
    call, _, body = caller.submitted()
    caller.waits()
    stranger = Frames(caller.told[4])
    stranger.send(said)
    assert stranger.receive()[0][0] == wire.ERROR
    assert stranger.at_end()
    caller.calls.connect()
    caller.help(1, body)
    caller.answer(call, caller.helped(1))
    assert caller.value() == 8


def test_messages_are_acknowledged(node: Node) -> None:
    caller = Caller(node, what="one", number=4)
    _, _, body = caller.submitted()
    caller.waits()
    for number in range(1, 130):
        caller.help(number, body)
        caller.helped(number)
    # The worker acknowledges messages at the latest every 64 messages.
    assert len(caller.calls._kept) < 64 + 64
    large = body[:2] + bytes(300_000)
    before = len(caller.calls._kept)
    caller.help(130, large)
    assert caller.help_failed(130)["kind"] == "arguments"
    until(lambda: not caller.calls.quiet(0.01) or len(caller.calls._kept) <= before)


def test_a_worker_that_does_not_wait_refuses(node: Node) -> None:
    caller = Caller(node, what="one", number=4)
    call, _, body = caller.submitted()
    caller.waits()
    caller.help(1, body, run=caller.run + 1)
    assert caller.calls.expect(wire.REFUSE)[0][2] == 1
    caller.help(2, body)
    caller.answer(call, caller.helped(2))
    assert caller.value() == 8
    caller.help(3, body)
    assert caller.calls.expect(wire.REFUSE)[0][2] == 3
    caller.help(4, body, aside=True)
    assert caller.calls.expect(wire.REFUSE)[0][2] == 4


def test_a_help_after_the_wait_is_refused(node: Node, tmp_path: Path) -> None:
    caller = Caller(node, what="waits", folder=str(tmp_path), name="stubborn")
    call, _, body = caller.submitted()
    caller.waits()
    caller.help(1, body)
    until((tmp_path / "began").exists)
    # With this outcome the caller's wait is over, as soon as it continues.
    caller.answer(call, b"\0\x80\x05K\x07.")
    caller.help(2, body)
    assert caller.calls.expect(wire.REFUSE)[0][2] == 2
    caller.calls.send(wire.CANCEL_HELP, 1)
    assert caller.help_failed(1)["kind"] == "cancelled"
    assert caller.value() == 7


def test_a_help_that_comes_with_the_outcome_is_refused(node: Node) -> None:
    caller = Caller(node, what="one", number=4)
    call, _, body = caller.submitted()
    caller.waits()
    caller.calls.cut()
    caller.answer(call, b"\0\x80\x05K\x07.")
    caller.help(1, body)
    caller.calls.connect()
    assert caller.calls.expect(wire.REFUSE)[0][2] == 1
    caller.calls.expect(wire.WAITED)
    assert caller.value() == 7


@pytest.mark.parametrize("name", ["forever", "stubborn"])
def test_the_cancel_of_a_helped_call_leaves_its_caller_alone(node: Node, tmp_path: Path, name: str) -> None:
    caller = Caller(node, what="after", folder=str(tmp_path), name=name)
    call, _, body = caller.submitted()
    caller.waits()
    caller.help(1, body)
    until((tmp_path / "began").exists)
    caller.calls.send(wire.CANCEL_HELP, 1)
    assert caller.help_failed(1)["kind"] == "cancelled"
    # The caller waits again. A late cancel, and one more interrupt, change nothing.
    caller.calls.send(wire.CANCEL_HELP, 1)
    node.agent.send([wire.SIGNAL, 1, 0, "interrupt"])
    caller.fail(call, "lost")
    assert caller.value() == "it was lost"


@pytest.mark.parametrize("name", ["forever", "stubborn"])
def test_the_cancel_of_a_run_passes_through_the_calls_that_it_helps_with(node: Node, tmp_path: Path, name: str) -> None:
    caller = Caller(node, what="nested", folder=str(tmp_path), name=name)
    _, _, outer = caller.submitted()
    caller.waits()
    caller.help(1, outer)
    _, helped, inner = caller.submitted()
    assert helped == 1
    caller.waits(1)
    caller.help(2, inner, depth=2, within=1)
    until((tmp_path / "began").exists)
    caller.cancel()
    assert caller.help_failed(2)["kind"] == "cancelled"
    assert caller.help_failed(1)["kind"] == "cancelled"
    assert caller.failure()["kind"] == "cancelled"
    assert (tmp_path / "KeyboardInterrupt").exists()
    assert (tmp_path / "swallowed").exists() == (name == "stubborn")


@pytest.mark.parametrize("name", ["forever", "stubborn"])
def test_the_cancel_of_a_call_in_the_middle_ends_only_the_calls_within_it(
    node: Node, tmp_path: Path, name: str
) -> None:
    caller = Caller(node, what="nested", folder=str(tmp_path), name=name)
    call, _, outer = caller.submitted()
    caller.waits()
    caller.help(1, outer)
    _, _, inner = caller.submitted()
    caller.waits(1)
    caller.help(2, inner, depth=2, within=1)
    until((tmp_path / "began").exists)
    caller.calls.send(wire.CANCEL_HELP, 1)
    assert caller.help_failed(2)["kind"] == "cancelled"
    assert caller.help_failed(1)["kind"] == "cancelled"
    caller.answer(call, b"\0\x80\x05K\x07.")
    assert caller.value() == 7


def test_a_run_that_waits_is_cancelled(node: Node, tmp_path: Path) -> None:
    caller = Caller(node, what="waits", folder=str(tmp_path), name="forever")
    caller.submitted()
    caller.waits()
    caller.cancel()
    assert caller.failure()["kind"] == "cancelled"
    caller.calls.expect(wire.WAITED)
    # Its waiting helped calls are refused, and the next run is not affected.
    run = caller.run = caller.worker.start(1, what="one", number=5)
    call, _, body = caller.submitted()
    caller.waits()
    caller.help(9, body, run=run)
    caller.answer(call, caller.helped(9))
    assert caller.value() == 10


def test_a_help_that_has_not_begun_is_cancelled(node: Node, tmp_path: Path) -> None:
    caller = Caller(node, what="waits", folder=str(tmp_path), name="forever")
    call, _, body = caller.submitted()
    caller.waits()
    caller.calls.cut()
    caller.help(1, body)
    caller.calls.send(wire.CANCEL_HELP, 1)
    caller.calls.connect()
    assert caller.help_failed(1)["kind"] == "cancelled"
    caller.answer(call, b"\0\x80\x05K\x07.")
    assert caller.value() == 7


@pytest.mark.parametrize("name", ["forever", "stubborn"])
def test_a_call_on_another_thread_is_cancelled(node: Node, tmp_path: Path, name: str) -> None:
    caller = Caller(node, what="aside", folder=str(tmp_path), name=name)
    call, _, body = caller.submitted()
    caller.help(1, body, aside=True)
    until((tmp_path / "began").exists)
    caller.calls.send(wire.CANCEL_HELP, 1)
    assert caller.help_failed(1)["kind"] == "cancelled"
    assert (tmp_path / "swallowed").exists() == (name == "stubborn")
    caller.fail(call, "cancelled")
    assert caller.value() == "CancelledError"


def test_a_call_on_another_thread_that_waits_is_cancelled(node: Node, tmp_path: Path) -> None:
    caller = Caller(node, what="aside", folder=str(tmp_path), name="parent")
    call, _, body = caller.submitted()
    caller.help(1, body, aside=True)
    _, helped, _ = caller.submitted()
    assert helped == 1
    caller.calls.send(wire.CANCEL_HELP, 1)
    assert caller.help_failed(1)["kind"] == "cancelled"
    caller.fail(call, "timeout")
    assert caller.value() == "TimeoutError"


def test_calls_that_a_run_leaves_are_cancelled(node: Node, tmp_path: Path) -> None:
    caller = Caller(node, what="leave", folder=str(tmp_path), count=5)
    for _ in range(5):
        call, _, _ = caller.submitted()
    assert caller.value() == "left"
    until((tmp_path / "CancelledError").exists)
    caller.answer(call, b"\0\x80\x05K\x07.")
    assert caller.worker.call(1, what="left") == [False, True]


def test_outcomes_without_an_answer(node: Node) -> None:
    caller = Caller(node, what="one", number=1)
    kinds = {
        "lost": "WorkerLost",
        "timeout": "TimeoutError",
        "refused": "CallError",
        "too_large": "CallError",
        "cancelled": "CancelledError",
    }
    for kind, name in kinds.items():
        call, _, _ = caller.submitted()
        caller.fail(call, kind)
        found = caller.failure()
        assert (found["type"], found["kind"]) == (name, "exception")
        caller.run = caller.worker.start(1, what="one", number=1)
    call, _, _ = caller.submitted()
    described = {"type": "ModuleNotFoundError", "module": "builtins", "traceback": "Traceback: here"}
    caller.fail(call, "import", **described, hint="add it")
    found = caller.failure()
    assert found["type"] == "RemoteError"
    assert found["message"] == "import: ModuleNotFoundError: it was import (add it)"
    assert "Traceback: here" in found["traceback"]


def test_timeouts_and_cancels_of_the_caller(node: Node) -> None:
    caller = Caller(node, what="timeout")
    call, _, _ = caller.submitted()
    assert caller.calls.expect(wire.DROP)[0][2] == call
    caller.fail(call, "cancelled")
    assert caller.value() == "timed out"


@pytest.mark.parametrize("what", ["result", "wait", "as_completed"])
def test_a_wait_with_a_deadline_runs_no_call_and_returns_at_its_deadline(node: Node, tmp_path: Path, what: str) -> None:
    caller = Caller(node, what="deadline", how=what, folder=str(tmp_path))
    caller.submitted()
    other, _, body = caller.submitted()
    # It was chosen for a wait without a deadline.
    caller.help(1, body)
    assert caller.calls.expect(wire.REFUSE)[0][2] == 1
    until((tmp_path / "over").exists)
    caller.waits()
    caller.help(2, body)
    caller.answer(other, caller.helped(2))
    assert caller.value() == 10


@pytest.mark.parametrize("kind", ["lock", "rlock", "condition", "semaphore", "bounded"])
def test_a_main_thread_that_holds_a_lock_of_its_module_runs_no_call(node: Node, kind: str) -> None:
    caller = Caller(node, what="locked", kind=kind)
    call, _, body = caller.submitted()
    caller.help(1, body)
    assert caller.calls.expect(wire.REFUSE)[0][2] == 1
    # Another worker, where the lock is another one, runs the call.
    caller.help(2, body, aside=True)
    answer = caller.helped(2)
    caller.answer(call, answer)
    # The lock is released by now.
    call, _, body = caller.submitted()
    caller.waits()
    caller.help(3, body)
    caller.answer(call, caller.helped(3))
    assert caller.value() == 16


@pytest.mark.parametrize("all", [False, True])
@pytest.mark.parametrize("before", [False, True])
def test_a_payload_that_closes_the_connection_does_not_hang(
    node: Node, tmp_path: Path, before: bool, all: bool
) -> None:
    caller = Caller(node, what="closed", before=before, folder=str(tmp_path), all=all)
    call, _, _ = caller.submitted()
    if before:
        caller.answer(call, b"\0\x80\x05K\x07.")
    (tmp_path / "go").touch()
    head, _ = node.agent.expect(wire.EXITED)
    assert head[4] == 4


@pytest.mark.parametrize(
    ("waits", "said"), [(True, "CallError: the payload has closed descriptors"), (False, "nothing")]
)
def test_a_cancel_after_the_payload_closed_the_connection_ends_the_worker(
    node: Node, tmp_path: Path, waits: bool, said: str
) -> None:
    caller = Caller(node, what="closed_elsewhere", folder=str(tmp_path), waits=waits)
    caller.submitted()
    caller.submitted()
    (tmp_path / "go").touch()
    head, _ = node.agent.expect(wire.EXITED)
    assert head[4] == 4
    assert (tmp_path / "said").read_text().startswith(said)
