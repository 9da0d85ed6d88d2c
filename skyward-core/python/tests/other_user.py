"""Code that runs as another user of this host; only root can do that."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")

USER = (1 << 20) + random.randrange(1 << 20)
"""A user with no other processes."""


def become() -> None:
    """Become that user, without groups and for good."""
    os.setgroups([])
    os.setgid(USER)
    os.setuid(USER)


@contextmanager
def running(function: Callable[[int, int], Any]) -> Iterator[Callable[[], Any]]:
    """Run a function as the other user in a process of its own.

    Args:
        function: gets a descriptor that is closed when it has to end, and one to write `+` into when
            it has begun. What it returns is encoded as JSON.

    Yields:
        a function that has it end, and returns its result.
    """
    end, ended = os.pipe()
    begun, begin = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(ended)
            os.close(begun)
            become()
            result = function(end, begin)
            os.write(begin, json.dumps(result).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(end)
    os.close(begin)

    def finish() -> Any:
        nonlocal ended
        if ended >= 0:
            os.close(ended)
            ended = -1
        with os.fdopen(begun, "rb") as pipe:
            return json.loads(pipe.read())

    try:
        assert os.read(begun, 1) == b"+"
        yield finish
    finally:
        if ended >= 0:
            os.close(ended)
        os.waitpid(pid, 0)


def start(command: Sequence[str], **environment: str) -> subprocess.Popen[bytes]:
    """Start a program as the other user."""
    user: dict[str, Any] = {"user": USER, "group": USER, "extra_groups": []}
    return subprocess.Popen(command, env={**os.environ, **environment}, start_new_session=True, **user)


A, P = socket.SO_REUSEADDR, socket.SO_REUSEPORT

Bind = tuple[str, tuple[int, ...]]
"""An address, with `only ` before it for sockets of IPv6 alone; and the options."""

_PLACES = ("{addr}", "0.0.0.0", "::", "::ffff:{addr}")
_OPTIONS: tuple[tuple[int, ...], ...] = ((), (A,), (P,), (A, P))

GRABS: list[list[Bind]] = [
    *([(place, options)] for place in _PLACES for options in _OPTIONS),
    # Linux remembers the user of the last socket at a port, and compares the address alone.
    [("only ::", (P,)), ("::", (P,))],
    [("only ::", (A, P)), ("::", (A, P))],
    [("0.0.0.0", (P,)), ("::", (P,))],
    [("127.0.0.1", (P,)), ("0.0.0.0", (P,))],
    [("::1", (P,)), ("only ::", (P,)), ("::", (P,))],
]
"""Ways to get a port that another user has."""


def grab(addr: str, port: int) -> tuple[list[socket.socket], list[str]]:
    """Try all ways; return the sockets that listen, and what could be bound."""
    listening, bound = [], []
    for binds in GRABS:
        for place, options in binds:
            name = place.removeprefix("only ").replace("{addr}", addr)
            if ":" in addr and name.startswith("::ffff:"):
                continue
            server = socket.socket(socket.AF_INET6 if ":" in name else socket.AF_INET)
            try:
                if server.family == socket.AF_INET6:
                    server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(place.startswith("only ")))
                for option in options:
                    server.setsockopt(socket.SOL_SOCKET, option, 1)
                server.bind((name, port))
                bound.append(f"{place} {options}")
                server.listen()
                server.setblocking(False)
            except OSError:
                server.close()
            else:
                listening.append(server)
    return listening, bound


def grabbing(addr: str, port: int) -> Callable[[int, int], Any]:
    """Return a function for `running` that tries to get a port until it has to end.

    Its result is what could be bound, and how many connections came.
    """

    def try_again(end: int, begin: int) -> Any:
        os.set_blocking(end, False)
        listening: list[socket.socket] = []
        bound: list[str] = []
        came = 0
        has_begun = False
        while True:
            more, names = grab(addr, port)
            listening += more
            bound += names
            for server in listening:
                try:
                    server.accept()
                    came += 1
                except OSError:
                    pass
            if not has_begun:
                os.write(begin, b"+")
                has_begun = True
            try:
                if os.read(end, 1) == b"":
                    return sorted(set(bound)), came
            except BlockingIOError:
                pass

    return try_again


def _main(addr: str, port: str) -> None:
    """Try to get the port until the input ends, and print what came of it."""
    ended, end = os.pipe()
    become()
    begin = os.dup(1)
    forked = os.fork()
    if forked == 0:
        os.close(end)
        print(json.dumps(grabbing(addr, int(port))(ended, begin)), flush=True)
        os._exit(0)
    os.close(ended)
    sys.stdin.read()
    os.close(end)
    os.waitpid(forked, 0)


if __name__ == "__main__":
    _main(*sys.argv[1:])
