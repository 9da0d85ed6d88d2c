"""Hostile input to workers and agents: it ends that client's connection, and nothing else."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from skyward._core import wire
from skyward._values import codec, errors

from .client import AgentClient, Frames, WorkerClient
from .conftest import Node
from .mover import MoverClient, ask_for_mover

DEEP = b"\x91" * 20_000 + b"\xc0"
"""Lists nested more deeply than Python's recursion limit."""

plain = st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.floats() | st.text(max_size=8)
anything = st.recursive(
    plain | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=8,
)
numbers = st.integers(0, 3) | st.integers(0, 1 << 63)
fields = st.lists(
    numbers | numbers.map(float) | st.text(max_size=8) | st.lists(numbers, max_size=3) | anything, max_size=7
)
bodies = st.binary(max_size=60) | anything.map(msgspec.msgpack.encode) | st.just(DEEP)


def frames(known: list[int]) -> st.SearchStrategy[bytes]:
    """Frames with these message numbers, most of them invalid, and bytes that are no frames."""
    of_message = st.builds(
        lambda number, rest, body: wire.frame([number, *rest], body), st.sampled_from(known), fields, bodies
    )
    too_long = st.builds(wire.HEADER.pack, st.integers(0, 1 << 31), st.integers(0, (1 << 32) - 1))
    of_bytes = st.builds(
        lambda head, body: wire.HEADER.pack(len(head), len(body)) + head + body, st.binary(max_size=20), bodies
    )
    return of_message | too_long | of_bytes | st.binary(max_size=30)


def raw(head: bytes, body: bytes = b"") -> bytes:
    """Build a frame with any bytes as head."""
    return wire.HEADER.pack(len(head), len(body)) + head + body


FEW = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
# `Bye` is left out, because it ends a worker.
TO_WORKER = [
    wire.ATTACH,
    wire.LOAD,
    wire.RUN,
    wire.ACK,
    wire.CREDIT,
    wire.CANCEL,
    wire.ADOPT,
    wire.NOTICE,
    wire.SIZE,
    0,
    75,
]
# Left out are messages that end an agent (`Shutdown`, and `Ping` with a lease that may be over at
# once), and `Watch`, which runs any program of this host.
TO_AGENT = [
    wire.HELLO,
    wire.START,
    wire.RESERVE_PORT,
    wire.SIGNAL,
    wire.STOP,
    wire.LOGS,
    wire.RECALL,
    wire.MOVER,
    0,
    12,
]
TO_MOVER = [wire.MOVER_ATTACH, wire.STAT, wire.MOVER_READ, wire.MOVER_DROP, 0, 197]
DEEP_SOURCE = b"\x82\xa5entry\xa4main\xa1x" + DEEP


def test_a_worker_outlives_every_client(node: Node) -> None:
    """All clients use one worker, which still answers afterwards."""
    path = str(node.ready("def main(): return 7").socket.getpeername())

    @FEW
    @given(st.booleans(), st.lists(frames(TO_WORKER), max_size=4))
    @example(True, [raw(b"\x93\x44\x01" + DEEP)])
    @example(True, [wire.frame([wire.LOAD, 2, "d"], DEEP_SOURCE)])
    @example(True, [wire.frame([wire.LOAD, 2, "d"], DEEP)])
    @example(True, [wire.frame([wire.RUN, 1, 1, 0, 0, None], DEEP)])
    @example(True, [wire.frame([wire.RUN, 1, 9, 0, 0, None])])
    @example(True, [wire.frame([wire.NOTICE, "preempted", -1.0, ""])])
    @example(True, [wire.frame([wire.NOTICE, "preempted", 1e300, ""])])
    @example(True, [wire.frame([wire.SIZE, 0])])
    @example(True, [wire.frame([wire.RUN, 1, 1, 0, 1 << 62, None]), wire.frame([wire.CREDIT, 1, (1 << 63) - 1, 0])])
    def meet(greets: bool, sent: list[bytes]) -> None:
        client = WorkerClient(path) if greets else Frames(path)
        send(client, sent)
        client.close()
        worker = WorkerClient(path)
        assert worker.hello()[0][5]
        worker.load(1, "def main(): return 7")
        assert worker.call(1) == 7
        worker.send([wire.ACK, worker.acknowledged])
        worker.close()

    meet()


def test_an_agent_outlives_every_client(node: Node) -> None:
    """All clients use one agent, which still answers afterwards."""
    path = str(node.folder / "agent.sock")
    node.agent.close()

    @FEW
    @given(st.booleans(), st.lists(frames(TO_AGENT), max_size=4))
    @example(True, [raw(b"\x92\x03\x01" + DEEP)])
    @example(True, [wire.frame([wire.START, 1, 1, [0]], b"\x81\xa1x" + DEEP)])
    @example(True, [wire.frame([wire.START, 1, 1, [0]], DEEP)])
    @example(True, [wire.frame([wire.WATCH])])
    @example(True, [wire.frame([wire.WATCH, []])])
    @example(True, [wire.frame([wire.WATCH, [1]])])
    @example(True, [wire.frame([wire.WATCH, [""]])])
    @example(True, [wire.frame([wire.WATCH, ["\0", "\0"]])])
    @example(True, [wire.frame([wire.WATCH, ["/no/such/program", "x" * 1_000_000]])])
    @example(True, [wire.frame([wire.LOGS, (1 << 63) - 1, (1 << 63) - 1, (1 << 63) - 1, (1 << 63) - 1])])
    def meet(greets: bool, sent: list[bytes]) -> None:
        client = AgentClient(node.folder) if greets else Frames(path)
        send(client, sent)
        client.close()
        agent = AgentClient(node.folder)
        agent.send([wire.PING, 1, 60.0])
        agent.expect(wire.PONG)
        agent.close()

    meet()


def test_a_mover_outlives_every_client(node: Node) -> None:
    """All clients use one mover, which still answers afterwards."""
    pid, path = ask_for_mover(node.agent)

    @FEW
    @given(st.booleans(), st.lists(frames(TO_MOVER), max_size=4))
    @example(True, [raw(b"\x94\xcc\xc2\x01" + DEEP)])
    @example(True, [wire.frame([wire.STAT, 1, "", b"x" * 1_000_000])])
    @example(True, [wire.frame([wire.STAT, 1, "\0", b"\0"])])
    @example(True, [wire.frame([wire.STAT, 1, "", b"work"])] * 99)
    @example(True, [wire.frame([wire.MOVER_READ, 1, "", b"agent.log", None, (1 << 63) - 1, 2 << 20])])
    @example(True, [wire.frame([wire.MOVER_READ, 1, "", b"agent.log", [-1, 1 << 63, 0], 0, 1])])
    @example(True, [wire.frame([wire.MOVER_DROP, 1, "é" * 32])])
    def meet(greets: bool, sent: list[bytes]) -> None:
        client = MoverClient(path) if greets else Frames(path)
        send(client, sent)
        client.close()
        mover = MoverClient(path)
        assert mover.hello[2] == pid
        assert mover.stat("work")[0][1] == "folder"
        mover.close()

    meet()


def send(client: Frames, sent: list[bytes]) -> None:
    """Send all frames, unless the peer has closed the connection."""
    try:
        for data in sent:
            client.socket.sendall(data)
    except OSError:
        pass


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=80) | anything.map(msgspec.msgpack.encode))
def test_a_value_is_read_or_refused(data: bytes) -> None:
    """A value that can be decoded is encoded and decoded to the same value."""
    try:
        value = codec.decode(memoryview(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError, TypeError, OverflowError):
        return
    try:
        parts = codec.encode(value)
    except errors.EncodeError:
        # Decoded keys may have types that a payload's value cannot have as keys.
        return
    again: Any = codec.decode(memoryview(b"".join(bytes(part) for part in parts)))
    assert repr(again) == repr(value)
