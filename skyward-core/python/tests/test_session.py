"""The session of a worker on its own: sending while the client does not read."""

from __future__ import annotations

import array
import os
import select
import socket
import threading
from pathlib import Path
from typing import cast

import msgspec
import pytest

from skyward._core import wire
from skyward._tasks.session import Session

from .client import DEADLINE, WorkerClient


class PipesOfClient:
    """The methods of a socket that a client needs, over two pipes."""

    def __init__(self, incoming: int, outgoing: int, carrier: socket.socket) -> None:
        self.incoming, self.outgoing, self.carrier = incoming, outgoing, carrier
        carrier.settimeout(DEADLINE)

    def recv_into(self, buffer: memoryview) -> int:
        assert select.select([self.incoming], [], [], DEADLINE)[0], "nothing arrived"
        return os.readv(self.incoming, [buffer])

    def sendall(self, data: bytes) -> None:
        assert os.write(self.outgoing, data) == len(data)

    def close(self) -> None:
        os.close(self.incoming)
        os.close(self.outgoing)


class Ends:
    """A session without a worker, and its client."""

    def __init__(self, folder: Path) -> None:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(folder / "s"))
        listener.listen()
        listener.setblocking(False)
        self.session = Session(listener, 1, 1 << 30)
        self.session.greet_with([wire.WORKER_HELLO, 2, os.getpid(), 1, 0, True, "3"], b"")
        self.client = WorkerClient(str(folder / "s"))
        self.session.wait()
        self.client.hello()

    def over_pipes(self, folder: Path) -> WorkerClient:
        """Connect another client, which hands two pipes to the session and uses them."""
        client = WorkerClient(str(folder / "s"))
        self.session.wait()
        inward, outward = os.pipe(), os.pipe()
        carrier = socket.socket(socket.AF_UNIX)
        carrier.connect(str(folder / "s"))
        self.session.wait()
        passed = array.array("i", [inward[0], outward[1]])
        carrier.sendmsg([wire.frame([wire.ADOPT])], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, passed)])
        for descriptor in passed:
            os.close(descriptor)
        self.session.wait()
        client.close()
        client.socket = cast("socket.socket", PipesOfClient(outward[0], inward[1], carrier))
        return client

    def in_background(
        self, parts: list[bytes], *, serve: bool = False, incoming: int | None = None
    ) -> threading.Thread:
        """Send a result that the client does not read yet from `incoming` or its socket.

        With `serve`, then handle the sockets until a client ends the worker, like a worker between
        two tasks.
        """

        def work() -> None:
            self.session.result(1, 0, 0, 0, [*parts])
            while serve and not self.session.leaving:
                self.session.wait()

        sender = threading.Thread(target=work, daemon=True)
        sender.start()
        # The first bytes have arrived, so the session is in the middle of the frame.
        assert select.select([self.client.socket if incoming is None else incoming], [], [], DEADLINE)[0]
        return sender


@pytest.fixture
def ends(tmp_path: Path) -> Ends:
    return Ends(tmp_path)


def test_nothing_is_written_into_the_middle_of_a_frame(ends: Ends) -> None:
    large = b"\xc6" + (8 << 20).to_bytes(4, "big") + bytes(8 << 20)
    sender = ends.in_background([large])
    # Each of these tasks is answered by a failure while the result is still being sent.
    body = msgspec.msgpack.encode({})
    for task in range(10, 20):
        ends.client.send([wire.RUN, task, 1, 0, 0, None], body)
        ends.client.send([wire.CANCEL, task])
    assert len(ends.client.outcome(1)[1]) == 8 << 20
    for task in range(10, 20):
        ends.client.send([wire.ACK, 0])
        if sender.is_alive():
            sender.join(DEADLINE)
        ends.session.pump()
        assert ends.client.outcome(task)[1]["kind"] == "cancelled"


def test_a_result_of_many_pieces(ends: Ends) -> None:
    parts = [bytes([0xDD, *(5000).to_bytes(4, "big")]), *([b"\x07"] * 5000)]
    sender = ends.in_background(parts)
    assert ends.client.outcome(1)[1] == [7] * 5000
    sender.join(DEADLINE)
    assert not sender.is_alive()


def test_a_client_that_replaces_one_that_does_not_read_gets_everything(ends: Ends, tmp_path: Path) -> None:
    large = b"\xc6" + (8 << 20).to_bytes(4, "big") + bytes(8 << 20)
    # The session may accept the second client before its `Hello`.
    sender = ends.in_background([large], serve=True)
    second = WorkerClient(str(tmp_path / "s"))
    second.hello()
    assert len(second.outcome(1)[1]) == 8 << 20
    second.send([wire.BYE])
    sender.join(DEADLINE)
    assert not sender.is_alive()


LARGE = b"\xc6" + (8 << 20).to_bytes(4, "big") + bytes(8 << 20)


def begin_run(ends: Ends) -> None:
    """Let the session take a run with a stream, as if the worker executed it."""
    ends.client.send([wire.RUN, 1, 1, 0, 9, None], msgspec.msgpack.encode({}))
    ends.session.wait()
    ends.session.queue.clear()
    ends.session.running = 1


@pytest.mark.parametrize("what", ["item", "report"])
def test_a_cancelled_task_does_not_wait_for_a_client_that_does_not_read(ends: Ends, tmp_path: Path, what: str) -> None:
    begin_run(ends)
    send = ends.session.item if what == "item" else ends.session.report
    sender = threading.Thread(target=send, args=(1, [LARGE] if what == "item" else LARGE), daemon=True)
    sender.start()
    assert select.select([ends.client.socket], [], [], DEADLINE)[0]
    sender.join(0.5)
    assert sender.is_alive(), "a task that is not cancelled waits"
    ends.client.send([wire.CANCEL, 1])
    sender.join(DEADLINE)
    assert not sender.is_alive()
    assert ends.client.at_end()
    ends.session.result(1, 0, 0, 0, [b"\x07"])
    # The next connection gets all of it, once.
    again = WorkerClient(str(tmp_path / "s"), streams=[[1, 0, 9]])
    reader = threading.Thread(target=lambda: [again.receive() for _ in range(3)], daemon=True)
    reader.start()
    ends.session.wait()
    reader.join(DEADLINE)
    assert not reader.is_alive()
    assert again.quiet()


def test_a_worker_that_is_terminated_does_not_wait_for_a_client_that_does_not_read(ends: Ends) -> None:
    sender = ends.in_background([LARGE])
    ends.client.send([wire.BYE])
    sender.join(0.5)
    assert sender.is_alive(), "a client that says goodbye may still read the result"
    ends.session.terminated = True
    sender.join(DEADLINE)
    assert not sender.is_alive()


def test_a_client_that_reads_slowly_gets_the_result_of_a_terminated_worker(ends: Ends) -> None:
    sender = ends.in_background([LARGE])
    ends.session.terminated = True
    assert len(ends.client.outcome(1)[1]) == 8 << 20
    sender.join(DEADLINE)
    assert not sender.is_alive()


def attach(client: WorkerClient, ends: Ends, streams: list[list[int]]) -> None:
    client.send([wire.ATTACH, wire.PROTOCOL, 1, 0, streams])
    ends.session.wait()
    client.expect(wire.WORKER_HELLO)


def test_a_connection_goes_on_over_descriptors(ends: Ends, tmp_path: Path) -> None:
    client = ends.over_pipes(tmp_path)
    attach(client, ends, [])
    client.send([wire.RUN, 7, 1, 0, 0, None], msgspec.msgpack.encode({}))
    client.send([wire.CANCEL, 7])
    ends.session.wait()
    assert client.outcome(7)[1]["kind"] == "cancelled"
    large = b"\xc6" + (8 << 20).to_bytes(4, "big") + bytes(8 << 20)
    sender = threading.Thread(target=ends.session.result, args=(1, 0, 0, 0, [large]), daemon=True)
    sender.start()
    assert len(client.outcome(1)[1]) == 8 << 20
    sender.join(DEADLINE)
    assert not sender.is_alive()
    pipes = cast("PipesOfClient", client.socket)
    pipes.close()
    ends.session.wait()
    assert pipes.carrier.recv(1) == b"", "whoever carried the descriptors is told of the end"


def test_a_client_over_descriptors_that_does_not_read_is_replaced(ends: Ends, tmp_path: Path) -> None:
    client = ends.over_pipes(tmp_path)
    attach(client, ends, [])
    large = b"\xc6" + (8 << 20).to_bytes(4, "big") + bytes(8 << 20)
    pipes = cast("PipesOfClient", client.socket)
    # The session may accept the second client before its `Hello`.
    sender = ends.in_background([large], serve=True, incoming=pipes.incoming)
    second = WorkerClient(str(tmp_path / "s"))
    second.hello()
    assert len(second.outcome(1)[1]) == 8 << 20
    second.send([wire.BYE])
    sender.join(DEADLINE)
    assert not sender.is_alive()
    assert pipes.carrier.recv(1) == b""


@pytest.mark.parametrize("count", [0, 1, 3])
def test_other_than_two_descriptors_are_refused_and_closed(ends: Ends, tmp_path: Path, count: int) -> None:
    carrier = socket.socket(socket.AF_UNIX)
    carrier.settimeout(DEADLINE)
    carrier.connect(str(tmp_path / "s"))
    ends.session.wait()
    read, write = os.pipe()
    passed = array.array("i", [write] * count)
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, passed)] if count else []
    carrier.sendmsg([wire.frame([wire.ADOPT])], ancillary)
    os.close(write)
    ends.session.wait()
    assert carrier.recv(1 << 16), "it is told why"
    assert carrier.recv(1) == b""
    assert os.read(read, 1) == b"", "nobody has the other end"
