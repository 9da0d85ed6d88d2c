"""A synchronous client of a mover, for tests."""

from __future__ import annotations

import socket
from typing import Any

import msgspec

from skyward._core import wire

from .client import AgentClient, Frames

Failure = tuple[str, str, int]


class MoverClient(Frames):
    """A connection to a mover."""

    def __init__(self, peer: str | socket.socket, pool: str = "pool") -> None:
        super().__init__(peer)
        self.send([wire.MOVER_ATTACH, wire.PROTOCOL, pool])
        self.hello, _ = self.expect(wire.MOVER_HELLO)
        self.lists: list[int] = []
        """How many entries each frame of the last list had."""
        self._request = 0

    def stat(self, path: bytes | str, artifact: str = "") -> list[list[Any]]:
        """Return the entries of a path; fail if the mover refuses it."""
        self._request += 1
        self.send([wire.STAT, self._request, artifact, _bytes(path)])
        self.lists, entries = [], []
        while True:
            head, body = self.receive()
            assert head[:2] == [wire.ENTRIES, self._request], head
            assert len(body) < 1 << 20
            found = msgspec.msgpack.decode(body)
            self.lists.append(len(found))
            entries += found
            if not head[2]:
                return entries

    def ask(self, number: int, *fields: Any, body: bytes = b"") -> tuple[list[Any], bytes]:
        """Send a request, and return the answer without its request number."""
        self._request += 1
        self.send([number, self._request, *fields], body)
        head, body = self.receive()
        assert head[1] == self._request, head
        return [head[0], *head[2:]], body

    def read(
        self, path: bytes | str, offset: int = 0, length: int = wire.LARGEST_PIECE, identity: Any = None, id: str = ""
    ) -> tuple[list[int], bytes]:
        """Return a piece of a file and the identity of the file; fail if the mover refuses it."""
        head, body = self.ask(wire.MOVER_READ, id, _bytes(path), identity, offset, length)
        assert head[0] == wire.MOVER_PIECE, head
        return head[1:], body

    def failure(self, number: int, *fields: Any, body: bytes = b"") -> Failure:
        """Return kind, words and errno of a request that fails."""
        head, answered = self.ask(number, *fields, body=body)
        assert (head[0], answered) == (wire.FAILED, b""), head
        return head[1], head[2], head[3]

    def stat_failure(self, path: bytes | str, artifact: str = "") -> Failure:
        return self.failure(wire.STAT, artifact, _bytes(path))

    def read_failure(self, path: bytes | str, identity: Any = None) -> Failure:
        return self.failure(wire.MOVER_READ, "", _bytes(path), identity, 0, 100)

    def content(self, path: bytes | str, id: str = "", length: int = wire.LARGEST_PIECE) -> bytes:
        """Return all of a file, read in pieces."""
        identity, part = self.read(path, 0, length, None, id)
        parts = [part]
        while part:
            _, part = self.read(path, sum(map(len, parts)), length, identity, id)
            parts.append(part)
        return b"".join(parts)


def ask_for_mover(agent: AgentClient, request: int = 77) -> tuple[int, str]:
    """Have the agent start the mover; return its process id and the path of its socket."""
    agent.send([wire.MOVER, request])
    head, body = agent.expect(wire.AGENT_MOVER)
    assert (head[1], body) == (request, b"")
    return head[2], head[3]


def mover_of(agent: AgentClient) -> MoverClient:
    """Start the mover of a node, and connect to it."""
    return MoverClient(ask_for_mover(agent)[1])


def _bytes(path: bytes | str) -> bytes:
    return path.encode() if isinstance(path, str) else path
