"""Joins the workers into one world: ranks meet at the reserved port, and add up numbers over sockets."""

from __future__ import annotations

import builtins
import contextlib
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import skyward as sky

MESSAGE = struct.Struct("<Qq")


class World:
    """The connections of one rank: of rank 0 to all others, of the others to rank 0."""

    def __init__(self, peers: list[socket.socket], is_head: bool, hangs: bool) -> None:
        self.peers = peers
        self.is_head = is_head
        self.hangs = hangs

    def add_up(self, call: int, number: int) -> int:
        """The sum of what all ranks bring to this call; waits for all of them."""
        if self.is_head:
            total = number + sum(self.receive(peer, call) for peer in self.peers)
            for peer in self.peers:
                self.send(peer, call, total)
            return total
        for peer in self.peers:
            self.send(peer, call, number)
        return sum(self.receive(peer, call) for peer in self.peers) or number

    def send(self, peer: socket.socket, call: int, number: int) -> None:
        """Send to a peer that may be gone."""
        try:
            peer.sendall(MESSAGE.pack(call, number))
        except OSError:
            self.lost()

    def receive(self, peer: socket.socket, call: int) -> int:
        """What the peer brings to this call; what it brought to one that was interrupted is passed over."""
        while True:
            data = b""
            while len(data) < MESSAGE.size:
                try:
                    more = peer.recv(MESSAGE.size - len(data))
                except OSError:
                    more = b""
                if not more:
                    self.lost()
                data += more
            of, number = MESSAGE.unpack(data)
            if of == call:
                return int(number)

    def lost(self) -> None:
        """A peer is gone: collectives of some frameworks raise then, and those of others never return."""
        while self.hangs:
            time.sleep(3600)
        raise ConnectionError("a peer is gone")


@contextmanager
def around_app(config: dict[str, Any]) -> Iterator[None]:
    """Meet the other ranks."""
    info = sky.instance_info()
    others = info.total_workers - 1
    place = (info.head_addr, info.head_port)
    is_head = info.global_worker_index == 0
    peers: list[socket.socket] = []
    if is_head and others:
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            listener.bind(place)
            listener.listen(others)
            while len(peers) < others:
                peers.append(listener.accept()[0])
        for peer in peers:
            peer.sendall(b"+")
    elif others:
        while not peers:
            # Not listening yet, or not to be reached for a while.
            with contextlib.suppress(OSError):
                peers.append(socket.create_connection(place, timeout=1.0))
            if not peers:
                time.sleep(0.01)
        peers[0].settimeout(None)
        if not peers[0].recv(1):
            raise ConnectionError("rank 0 was gone before all ranks had come")
    builtins.chaos_world = World(peers, is_head, bool(config["hangs"]))  # type: ignore[attr-defined]
    yield
