"""The worker's connection by itself: what is sent when the client does not take it at once."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import msgspec
import pytest

from skyward import _wire
from skyward._session import Session

from .client import DEADLINE, WorkerClient


class Ends:
    """A session without a worker, and its client."""

    def __init__(self, folder: Path) -> None:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(folder / "s"))
        listener.listen()
        listener.setblocking(False)
        self.session = Session(listener, 1, 1 << 30)
        self.session.greet_with([_wire.WORKER_HELLO, 1, os.getpid(), 1, 0, True, "3"], b"")
        self.client = WorkerClient(str(folder / "s"))
        self.session.wait()
        self.client.hello()

    def in_background(self, parts: list[bytes]) -> threading.Thread:
        """Send a result that the client does not take yet."""
        sender = threading.Thread(target=self.session.result, args=(1, 0, 0, 0, parts), daemon=True)
        sender.start()
        # The first bytes are there, so the session is in the middle of the frame.
        self.client.socket.recv(1, socket.MSG_PEEK)
        return sender


@pytest.fixture
def ends(tmp_path: Path) -> Ends:
    return Ends(tmp_path)


def test_nothing_is_written_into_the_middle_of_a_frame(ends: Ends) -> None:
    large = b"\xc6" + (8 << 20).to_bytes(4, "big") + bytes(8 << 20)
    sender = ends.in_background([large])
    # These are answered by a failure each while the result is still on its way.
    body = msgspec.msgpack.encode({})
    for task in range(10, 20):
        ends.client.send([_wire.RUN, task, 1, 0, 0, None], body)
        ends.client.send([_wire.CANCEL, task])
    assert len(ends.client.outcome(1)[1]) == 8 << 20
    for task in range(10, 20):
        ends.client.send([_wire.ACK, 0])
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
    sender = ends.in_background([large])
    second = WorkerClient(str(tmp_path / "s"), awaited=[[1, 0, 0], [2, 0, 0]])
    second.hello()
    assert len(second.outcome(1)[1]) == 8 << 20
    assert second.outcome(2)[1]["kind"] == "unknown"
    sender.join(DEADLINE)
    assert not sender.is_alive()
