"""A small synchronous client of agent and worker, for tests and benchmarks."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import msgspec

from skyward._core import wire

ROOT = Path(__file__).resolve().parent.parent
DEADLINE = 60.0


def source(text: str) -> str:
    """Return the source in an indented string, without the indentation and the first newline."""
    return textwrap.dedent(text).removeprefix("\n")


def gone(pid: int) -> bool:
    """Wait until a process has ended; return whether it has."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(DEADLINE * 1000))
    finally:
        os.close(descriptor)


class Frames:
    """A connected socket that sends and receives frames, with a deadline on every wait."""

    def __init__(self, peer: str | socket.socket) -> None:
        """Connect to the socket at a path, or use one that is connected."""
        self.socket = socket.socket(socket.AF_UNIX) if isinstance(peer, str) else peer
        self.socket.settimeout(DEADLINE)
        if isinstance(peer, str):
            self.socket.connect(peer)
        self.seen: list[tuple[list[Any], bytes]] = []
        """Frames that arrived while another one was expected."""

    def send(self, head: list[Any], body: bytes = b"") -> None:
        self.socket.sendall(wire.frame(head, body))

    def receive(self) -> tuple[list[Any], bytes]:
        head_length, body_length = wire.HEADER.unpack(self._exactly(8))
        head = msgspec.msgpack.decode(self._exactly(head_length))
        return head, bytes(self._exactly(body_length))

    def expect(self, number: int) -> tuple[list[Any], bytes]:
        """Return the next frame of this kind; others are kept in `seen`."""
        for index, (head, _) in enumerate(self.seen):
            if head[0] == number:
                return self.seen.pop(index)
        while True:
            head, body = self.receive()
            if head[0] == number:
                return head, body
            self.seen.append((head, body))

    def at_end(self) -> bool:
        """Wait for the peer to close."""
        try:
            while self.socket.recv(65536):
                pass
        except ConnectionResetError:
            pass
        return True

    def quiet(self, seconds: float = 0.1) -> bool:
        """Return whether nothing arrives for a while."""
        return not select.select([self.socket], [], [], seconds)[0]

    def close(self) -> None:
        self.socket.close()

    def _exactly(self, length: int) -> bytearray:
        data = bytearray(length)
        view = memoryview(data)
        while view:
            count = self.socket.recv_into(view)
            if not count:
                raise EOFError("the peer closed the connection")
            view = view[count:]
        return data


class WorkerClient(Frames):
    """A connection to one worker."""

    def __init__(self, path: str, generation: int = 1, acknowledged: int = 0, streams: Any = ()) -> None:
        super().__init__(path)
        self.send([wire.ATTACH, wire.PROTOCOL, generation, acknowledged, list(streams)])
        self.task = 0
        """The number of the last run that was sent; a worker's runs are numbered for its whole
        life.
        """
        self.acknowledged = 0
        self.gang: list[int] | None = [1, 1, 1]
        """The first task, the attempt and the ranks of its tasks' broadcast; None for tasks on this worker alone."""
        self.imports: list[list[Any]] = []
        """What the worker has said of imports: run, and whether it begins."""
        self._early: list[tuple[list[Any], bytes]] = []

    def receive(self) -> tuple[list[Any], bytes]:
        """Return the next frame that says nothing of imports."""
        while not self._early:
            self._read()
        return self._early.pop(0)

    def quiet(self, seconds: float = 0.1) -> bool:
        """Return whether nothing arrives for a while, except of imports."""
        end = time.monotonic() + seconds
        while not self._early and not super().quiet(max(0.0, end - time.monotonic())):
            self._read()
        return not self._early

    def _read(self) -> None:
        head, body = super().receive()
        if head[0] == wire.IMPORT:
            self.imports.append(head[1:])
        else:
            self._early.append((head, body))

    def expect_import(self, task: int, begins: bool) -> None:
        """Wait until the worker says this of the payload of a task."""
        while [task, begins] not in self.imports:
            self._read()

    def hello(self) -> tuple[list[Any], Any]:
        head, body = self.expect(wire.WORKER_HELLO)
        self.task = max(self.task, head[7])
        return head, msgspec.msgpack.decode(body) if body else None

    def load(
        self,
        reference: int,
        files: str | dict[str, str],
        entry: str = "main",
        main: str = "job.py",
        first_line: int = 1,
    ) -> None:
        """Load a payload: one text, or texts by path; each may be an indented multi-line string."""
        texts = {main: files} if isinstance(files, str) else files
        loaded = [(path, source(text)) for path, text in texts.items()]
        body = {"entry": entry, "main": main, "first_line": first_line, "files": loaded}
        self.send([wire.LOAD, reference, f"{hash(str(body)) & (1 << 64) - 1:016x}"], msgspec.msgpack.encode(body))

    def start(self, reference: int, credit: int = 0, /, **arguments: Any) -> int:
        self.task += 1
        body = msgspec.msgpack.encode(arguments)
        self.send([wire.RUN, self.task, reference, self.acknowledged, credit, None, self.gang], body)
        return self.task

    def outcome(self, task: int) -> tuple[list[Any], Any]:
        """Return the answer to a task: head and decoded body."""
        for index, (head, body) in enumerate(self.seen):
            if head[0] in (wire.RESULT, wire.FAILURE) and head[2] == task:
                del self.seen[index]
                return self._answer(head, body)
        while True:
            head, body = self.receive()
            if head[0] in (wire.RESULT, wire.FAILURE) and head[2] == task:
                return self._answer(head, body)
            self.seen.append((head, body))

    def call(self, reference: int, /, **arguments: Any) -> Any:
        """Return the value of a call that succeeds."""
        head, value = self.outcome(self.start(reference, **arguments))
        assert head[0] == wire.RESULT, value
        return value

    def failure(self, reference: int, /, **arguments: Any) -> dict[str, Any]:
        """Return the failure map of a call that fails."""
        head, value = self.outcome(self.start(reference, **arguments))
        assert head[0] == wire.FAILURE, value
        return value  # type: ignore[no-any-return]

    def _answer(self, head: list[Any], body: bytes) -> tuple[list[Any], Any]:
        self.acknowledged = max(self.acknowledged, head[1])
        return head, msgspec.msgpack.decode(body)


class CallsClient:
    """The client's side of one worker's calls connection, across reconnects."""

    def __init__(self, path: str, generation: int = 1) -> None:
        self.path, self.generation = path, generation
        self.received = self.sent = 0
        self.unread: list[tuple[list[Any], bytes]] = []
        """Numbered messages that were not expected yet."""
        self._kept: list[tuple[int, bytes]] = []
        self.frames: Frames | None = None
        self.hello: list[Any] = []
        self.connect()

    def connect(self) -> None:
        """Connect, or connect again, and send unacknowledged messages again."""
        self.cut()
        self.frames = Frames(self.path)
        self.frames.send([wire.CALLS_ATTACH, wire.PROTOCOL, self.generation, self.received])
        self.hello, _ = self.frames.receive()
        assert self.hello[0] == wire.CALLS_HELLO, self.hello
        self._acknowledge(self.hello[5])
        if self._kept:
            self.frames.socket.sendall(b"".join(frame for _, frame in self._kept))

    def cut(self) -> None:
        """Close the connection."""
        if self.frames is not None:
            self.frames.close()
            self.frames = None

    def send(self, number: int, *fields: Any, body: bytes = b"") -> None:
        """Send a numbered message, if there is a connection, and keep it for the next one."""
        self.sent += 1
        frame = wire.frame([number, self.sent, *fields], body)
        self._kept.append((self.sent, frame))
        if self.frames is not None:
            # If the connection has ended, `read` finds it.
            with contextlib.suppress(BrokenPipeError):
                self.frames.socket.sendall(frame)

    def acknowledge(self) -> None:
        """Acknowledge the messages that have arrived."""
        assert self.frames is not None
        self.frames.send([wire.CALLS_ACK, self.received])

    def read(self) -> None:
        """Receive one frame."""
        assert self.frames is not None
        head, body = self.frames.receive()
        if head[0] == wire.WORKER_CALLS_ACK:
            self._acknowledge(head[1])
            return
        assert head[0] != wire.ERROR, head
        assert head[1] <= self.received + 1, (head, self.received)
        if head[1] == self.received + 1:
            self.received += 1
            self.unread.append((head, body))

    def expect(self, number: int) -> tuple[list[Any], bytes]:
        """Return the next message of this kind; others are kept."""
        while True:
            for index, (head, _) in enumerate(self.unread):
                if head[0] == number:
                    return self.unread.pop(index)
            self.read()

    def quiet(self, seconds: float = 0.2) -> bool:
        """Return whether there is no message and none arrives for a while."""
        while not self.unread and self.frames is not None and not self.frames.quiet(seconds):
            self.read()
        return not self.unread

    def _acknowledge(self, received: int) -> None:
        self._kept = [kept for kept in self._kept if kept[0] > received]


class AgentClient(Frames):
    """A connection to an agent."""

    def __init__(self, folder: Path, pool: str = "pool") -> None:
        super().__init__(str(folder / "agent.sock"))
        self.send([wire.HELLO, wire.PROTOCOL, pool, wire.MAX_FRAME_BYTES])
        self.facts, body = self.expect(wire.AGENT_HELLO)
        self.installed: dict[str, str] = msgspec.msgpack.decode(body)

    def start(self, spec: dict[str, Any], workers: list[int] | None = None) -> list[list[Any]]:
        """Start workers; return a list of index, pid and socket path."""
        generation = spec["cluster"]["generation"]
        self.send([wire.START, 1, generation, workers or [0]], msgspec.msgpack.encode(spec))
        while True:
            head, _ = self.receive()
            if head[0] == wire.STARTED:
                return head[3]  # type: ignore[no-any-return]
            assert head[0] != wire.ERROR, head
            self.seen.append((head, b""))

    def shutdown(self, grace: float = 2.0) -> None:
        self.send([wire.SHUTDOWN, 2, grace])
        self.expect(wire.AGENT_BYE)


def start_agent(
    folder: Path, *options: str, machine: str = "", lease: float = 2 * DEADLINE, path: str = ""
) -> dict[str, Any]:
    """Start an agent in the folder; return the line that it prints."""
    command = [sys.executable, "-m", "skyward.agent", "--dir", str(folder), "--addr", "127.0.0.1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SKYWARD_MACHINE": machine or f"test-{folder}"}
    done = subprocess.run(
        [*command, "--lease", str(lease), f"--path={path}", *options],
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def start_spec(generation: int = 1, workers: int = 1, **more: Any) -> dict[str, Any]:
    """Return a start spec for one node."""
    cluster = {
        "node": 0,
        "total_nodes": 1,
        "workers_per_node": workers,
        "head_addr": "127.0.0.1",
        "head_port": 40000,
        "job_id": "pool",
        "addr": "127.0.0.1",
        "peers": [{"node": 0, "addr": "127.0.0.1"}],
        "accelerators": 0,
        "total_accelerators": 0,
        "accelerator": None,
        "generation": generation,
        "joined": True,
    }
    cluster.update(more.pop("cluster", {}))
    return {
        "python": sys.executable,
        "launcher": [],
        "env": {},
        "cwd": None,
        "cluster": cluster,
        "hooks": [],
        "max_frame_bytes": 1 << 30,
        "retain_bytes": 1 << 28,
        **more,
    }
