"""The relay of the mover: messages between workers and the client that attends."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from skyward import mover as program
from skyward._core import wire
from skyward._mover import files, peer, relay, worker_connection
from skyward._mover.outbox import Outbox

from .attending import Attendant, Here, Writer, make_steps
from .client import DEADLINE, Frames
from .conftest import Node
from .mover import ask_for_mover


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


def test_messages_go_both_ways(here: Here) -> None:
    client = here.client()
    first, second = here.worker(), here.worker()
    first.say(b"open")
    assert client.sent() == (1, 1, b"open")
    second.say(b"")
    second.say(b"x" * (1 << 20))
    assert client.sent() == (2, 1, b"")
    assert client.sent() == (2, 2, b"x" * (1 << 20))
    client.deliver(2, 0, b"to the second")
    client.deliver(1, 0, b"y" * (1 << 20))
    assert second.heard() == b"to the second"
    assert first.heard() == b"y" * (1 << 20)


def test_the_mover_of_a_node_relays(node: Node) -> None:
    path = ask_for_mover(node.agent)[1]
    client = Attendant(path)
    worker = Writer(path, make_steps(node.folder))
    worker.say(b"open")
    channel, number, body = client.sent()
    assert (number, body) == (1, b"open")
    client.deliver(channel, 1, b"reply")
    assert worker.heard() == b"reply"
    worker.close()
    assert client.told()[0] == [wire.CLOSED, channel]


def test_messages_wait_for_a_client_and_are_repeated_to_the_next_one(here: Here) -> None:
    worker = here.worker()
    for number in range(3):
        worker.say(b"%d" % number)
    expected = [(1, number + 1, b"%d" % number) for number in range(3)]
    client = here.client()
    assert [client.sent() for _ in range(3)] == expected
    assert client.attend() == [wire.DONE]
    client.deliver(1, 2)
    client.close()
    client = here.client()
    assert client.sent() == expected[2], "the others are acknowledged, and a repeated Attend repeats nothing"
    worker.say(b"more")
    assert client.sent() == (1, 4, b"more")


def test_an_acknowledgement_is_for_the_messages_of_one_channel_up_to_its_number(here: Here) -> None:
    workers = [here.worker() for _ in range(2)]
    client = here.client()
    for worker in workers:
        worker.say(b"a")
        worker.say(b"b")
        assert [client.sent()[1] for _ in range(2)] == [1, 2]
    client.deliver(1, 1)
    client.deliver(2, 1 << 62)
    client.deliver(3, 2)
    assert here.client().sent() == (1, 2, b"b")


def test_only_the_last_client_attends(here: Here) -> None:
    worker = here.worker()
    other = here.client(attends=False)
    first = here.client()
    second = here.client()
    assert first.at_end()
    worker.say(b"x")
    assert second.sent() == (1, 1, b"x")
    assert other.stat(str(here.home)), "a client that does not attend is served too"
    assert other.quiet()
    assert other.attend() == [wire.DONE]
    assert other.sent() == (1, 1, b"x")
    assert second.at_end()


def test_a_closed_channel_is_told_after_its_messages_until_it_is_acknowledged(here: Here) -> None:
    worker = here.worker()
    worker.say(b"close")
    worker.close()
    for _ in range(2):
        client = here.client()
        assert client.sent() == (1, 1, b"close")
        assert client.told() == ([wire.CLOSED, 1], b"")
    client.deliver(1, 0)
    client = here.client()
    assert client.sent() == (1, 1, b"close"), "the message was not acknowledged"
    assert client.told()[0] == [wire.CLOSED, 1]
    client.deliver(1, 1)
    assert not here.program._relay._channels
    assert not here.program._relay._closed
    client = here.client()
    here.worker().say(b"next")
    assert client.sent() == (2, 1, b"next")


def test_what_was_acknowledged_before_is_closed_for_the_next_client_too(here: Here) -> None:
    worker = here.worker()
    worker.say(b"close")
    client = here.client()
    assert client.sent()
    client.deliver(1, 1)
    client.close()
    worker.close()
    assert here.client().told()[0] == [wire.CLOSED, 1]


def test_a_channel_that_is_gone_takes_messages_and_no_ask(here: Here) -> None:
    worker = here.worker()
    client = here.client()
    worker.close()
    assert client.told()[0] == [wire.CLOSED, 1]
    for channel in (1, 2):
        client.deliver(channel, 0, b"too late")
        kind, words, _ = client.failure(wire.ASK, channel, 1)
        assert kind == "missing"
        assert f"channel {channel} has no worker" in words


def test_a_channel_is_forgotten_only_if_the_client_that_attends_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Manual:
        """An outlet that sends when the test says so."""

        def __init__(self, _: object) -> None:
            self.waiting: list[Callable[[], Any]] = []
            self.put = self.waiting.append

        def end(self) -> None:
            pass

    monkeypatch.setattr(relay, "Outlet", Manual)
    worker: Any = None
    relayed = relay.Relay(Outbox(str(tmp_path)), 0)
    for _ in range(2):
        client: Any = object()
        relayed.attend(client)
        if not relayed._opened:
            relayed.close(relayed.open(worker))
        assert relayed._attendant is not None
        outlet: Any = relayed._attendant.outlet
        relayed.deliver(1, 0, b"")
        assert relayed._channels, "this may have been sent before it arrived"
        assert [make() for make in outlet.waiting] == [([wire.CLOSED, 1], b"")]
    relayed.deliver(1, 0, b"")
    assert not relayed._channels


def test_nothing_comes_between_the_parts_of_a_list(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    client, worker = here.client(), here.worker()

    def lists(_: bytes) -> Iterator[bytes]:
        yield b"first"
        yield b"second"
        worker.say(b"x")
        time.sleep(0.2)
        yield b"third"

    monkeypatch.setattr(files, "lists", lists)
    client.send([wire.STAT, 1, "", b"."])
    received = [Frames.receive(client) for _ in range(4)]
    assert [body for _, body in received] == [b"first", b"second", b"third", b"x"]


def test_frames_of_several_threads_stay_whole(here: Here) -> None:
    client, worker = here.client(), here.worker()
    for number in range(8):
        worker.say(bytes([number]) * (1 << 20))
    for _ in range(20):
        client.send([wire.DELIVER, 1, 1, 0])
    time.sleep(0.2)
    received = [Frames.receive(client) for _ in range(28)]
    sent = [(head[2], body) for head, body in received if head[0] == wire.SENT]
    assert sent == [(number + 1, bytes([number]) * (1 << 20)) for number in range(8)]
    assert sum(head == [wire.DONE, 1] for head, _ in received) == 20


# Who is slow


def test_a_client_that_does_not_read_is_given_up_and_no_worker_waits_for_it(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer, "_PATIENCE", 1.0)
    client = here.client()
    monkeypatch.undo()
    worker = here.worker()
    for _ in range(8):
        worker.say(bytes(1 << 20))
    other = here.worker()
    other.say(b"x")
    began = time.monotonic()
    watcher = here.client(attends=False)
    assert watcher.stat(str(here.home))
    assert time.monotonic() - began < 0.9, "nobody waits for the client that does not read"
    deadline = time.monotonic() + DEADLINE
    while here.program._relay._attendant is not None:
        assert time.monotonic() < deadline
    client = here.client()
    assert [client.sent()[:2] for _ in range(9)] == [*((1, number + 1) for number in range(8)), (2, 1)]


def test_a_worker_that_computes_may_leave_messages_unread_and_no_client_waits_for_it(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer, "_PATIENCE", 0.1)
    worker, client = here.worker(), here.client()
    bodies = [bytes([number]) * (1 << 20) for number in range(7)]
    for body in bodies:
        client.deliver(1, 0, body)
    time.sleep(0.5)
    assert [worker.heard() for _ in bodies] == bodies


def test_a_worker_that_never_reads_loses_its_connection(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(worker_connection, "complain", said.append)
    worker, client = here.worker(), here.client()
    for _ in range(12):
        client.deliver(1, 0, bytes(1 << 20))
    assert client.told()[0] == [wire.CLOSED, 1]
    assert "unread" in said[0]
    assert worker.at_end()


@pytest.mark.parametrize(("size", "most"), [(1, 256), (1 << 20, 8), (0, 256)])
def test_a_worker_that_sends_without_end_is_refused(here: Here, size: int, most: int) -> None:
    worker = here.worker()
    for _ in range(most):
        worker.say(bytes(size))
    client = here.client()
    assert [client.sent()[1] for _ in range(most)] == list(range(1, most + 1))
    client.deliver(1, 1)
    worker.say(bytes(size))
    assert client.sent()[1] == most + 1
    worker.say(bytes(size))
    assert f"{most} messages of this worker" in worker.error()
    assert client.told()[0] == [wire.CLOSED, 1]
    assert here.worker(), "the others are served"


def test_closed_channels_are_bounded(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(relay, "complain", said.append)
    monkeypatch.setattr(relay, "_MOST_CLOSED", 2)
    monkeypatch.setattr(relay, "_MOST_CLOSED_BYTES", 100)
    for size in (1, 1, 1, 60, 60):
        worker = here.worker()
        worker.say(bytes(size))
        worker.close()
        deadline = time.monotonic() + DEADLINE
        while here.program._workers:
            assert time.monotonic() < deadline
    client = here.client()
    assert client.sent()[:2] == (5, 1), "of three, the latest two are kept, and of these 100 bytes"
    assert client.told()[0] == [wire.CLOSED, 5]
    assert len(said) == 4


# Workers that break the protocol


def test_a_frame_of_a_worker_has_at_most_one_mebibyte(here: Here) -> None:
    worker = here.worker()
    # The mover may refuse it before all of it was sent.
    with suppress(BrokenPipeError, ConnectionResetError):
        worker.say(bytes((1 << 20) + 1))
    assert "over the limit" in worker.error()


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ([wire.CHANNEL_ATTACH, wire.PROTOCOL, "0" * 32], "message 257 is not one"),
        ([wire.STAT, 1, "", b"."], "message 194 is not one"),
        ([wire.ATTEND, 1], "message 197 is not one"),
        ([wire.MOVER_ATTACH, wire.PROTOCOL, "pool"], "message 193 is not one"),
        ([wire.CHANNEL_SAVED, "../" + "0" * 29], "32 lower-case hexadecimal digits"),
        ([wire.CHANNEL_SAVED, ""], "32 lower-case hexadecimal digits"),
        ([wire.CHANNEL_SAVED, 7], "message 259"),
        ([260], "260"),
    ],
)
def test_a_worker_that_breaks_the_protocol_is_refused(here: Here, head: list[Any], words: str) -> None:
    client = here.client()
    worker = here.worker()
    worker.send(head)
    assert words in worker.error()
    assert client.told()[0] == [wire.CLOSED, 1]


def test_a_worker_needs_this_version_and_a_file_of_steps(here: Here) -> None:
    steps = here.folder / "steps"
    id = make_steps(here.home)
    (steps / ("1" * 32)).write_bytes(bytes(15))
    (steps / ("2" * 32)).mkdir()
    (steps / ("3" * 32)).symlink_to(steps / id)
    os.mkfifo(steps / ("4" * 32))
    for name, words in [
        ("0" * 32, "No such file"),
        ("1" * 32, "no file of 16 bytes"),
        ("2" * 32, "Is a directory"),
        ("3" * 32, "symbolic link"),
        ("4" * 32, "no file of 16 bytes"),
        ("..", "32 lower-case"),
        (f"../steps/{id}", "32 lower-case"),
        ("\0" * 32, "32 lower-case"),
    ]:
        assert words in Writer(here.connect(), name).error()
    assert "version 2" in Writer(here.connect(), id, version=2).error()
    assert not here.program._relay._channels
    assert Writer(here.connect(), id).hello()


def test_clients_and_workers_are_counted_apart(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "_MOST", 1)
    monkeypatch.setattr(program, "_MOST_WORKERS", 2)
    workers = [here.worker() for _ in range(2)]
    client = here.client()
    assert "2 connections of workers" in Writer(here.connect(), make_steps(here.home)).error()
    workers[1].close()
    assert client.told()[0] == [wire.CLOSED, 2]
    deadline = time.monotonic() + DEADLINE
    while len(here.program._workers) > 1:
        assert time.monotonic() < deadline
    third = here.worker()
    third.say(b"x")
    assert client.sent() == (3, 1, b"x")
    monkeypatch.setattr(program, "_MOST_OPEN", 3)
    refused = Frames(here.connect())
    assert "3 connections" in refused.receive()[0][2]
    assert refused.at_end()


def test_a_mover_gives_back_what_workers_have_used(here: Here) -> None:
    client = here.client()
    before = set(os.listdir("/proc/self/fd"))
    threads = threading.active_count()
    for index in range(50):
        worker = here.worker()
        worker.close()
        assert client.told()[0] == [wire.CLOSED, index + 1]
        client.deliver(index + 1)
    deadline = time.monotonic() + DEADLINE
    while threading.active_count() > threads or len(os.listdir("/proc/self/fd")) > len(before):
        assert time.monotonic() < deadline
    assert not here.program._relay._channels


# The end of processes


def test_another_mover_begins_anew(node: Node) -> None:
    first, path = ask_for_mover(node.agent)
    client = Attendant(path)
    steps = make_steps(node.folder)
    worker = Writer(path, steps)
    worker.say(b"open")
    channel, *open = client.sent()
    assert open == [1, b"open"]
    os.kill(first, signal.SIGKILL)
    assert client.at_end()
    assert worker.at_end()
    _, path = ask_for_mover(node.agent)
    worker = Writer(path, steps)
    worker.say(b"open again")
    other, *open = Attendant(path).sent()
    assert open == [1, b"open again"]
    assert other != channel, "a late answer must not reach another worker"


def test_workers_that_come_and_go_do_not_disturb_others(here: Here) -> None:
    """Eight workers with 25 connections each, while clients take turns in attending."""
    told: dict[tuple[int, int], bytes] = {}
    closed: set[int] = set()

    def work(number: int) -> None:
        for turn in range(25):
            worker = here.worker()
            for message in range(3):
                worker.say(b"%d %d %d" % (number, turn, message))
            worker.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + DEADLINE
    while len(closed) < 200:
        client = here.client()
        client.socket.settimeout(2.0)
        for _ in range(40):
            if len(closed) == 200:
                break
            try:
                head, body = client.told()
            except TimeoutError:
                break
            if head[0] == wire.SENT:
                assert told.setdefault((head[1], head[2]), body) == body
                assert head[1] not in closed
            elif head[0] == wire.CLOSED:
                closed.add(head[1])
                client.deliver(head[1], 3)
        client.close()
        assert time.monotonic() < deadline, len(closed)
    for thread in threads:
        thread.join(DEADLINE)
    assert sorted(told) == [(channel, number) for channel in range(1, 201) for number in range(1, 4)]
    assert sorted(told.values()) == sorted(
        b"%d %d %d" % (n, t, m) for n in range(8) for t in range(25) for m in range(3)
    )
