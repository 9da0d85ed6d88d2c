"""Servers of this process at the head port, beside the socket with which the agent holds it.

The agent holds the port so that no other user of the head can bind it. A server can if it has the
same user and sets SO_REUSEPORT. gRPC does so by itself. Python's sockets and torch's stores, which
do not, get the option here. As without it, a second server at the port is refused.

This is so on all nodes: machines of one host may have different addresses and share its ports.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, LOCK_UN, flock
from functools import wraps
from types import ModuleType
from typing import Any
from weakref import WeakSet

from .._core.address import bindable, family_of
from .on_import import on_import


def share(cluster: Mapping[str, Any]) -> None:
    """Let servers of this process bind the head port.

    Args:
        cluster: the worker's place, as the start spec has it.
    """
    head, port = cluster.get("head_addr"), cluster.get("head_port")
    if head and port:
        _share_with_sockets(port, os.path.dirname(cluster.get("peers_file") or ""))
        on_import("torch.distributed", lambda module: _share_with_stores(module, head, port))


def _share_with_sockets(port: int, folder: str) -> None:
    # The class in Python, which has no `bind` of its own, and from which `ssl` and others inherit.
    bind = socket.socket.bind
    only_six: WeakSet[socket.socket] = WeakSet()

    @wraps(bind)
    def bind_beside(self: socket.socket, address: Any, /) -> None:
        is_tcp = self.family in (socket.AF_INET, socket.AF_INET6) and self.type == socket.SOCK_STREAM
        is_here = is_tcp and isinstance(address, tuple) and address[1:2] == (port,)
        # Servers that set the option themselves share the port with each other.
        if is_here and not self.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT):
            # Names become addresses.
            with socket.socket(self.family) as probe:
                bind(probe, (address[0], 0, *address[2:]))
                here = socket.inet_pton(self.family, probe.getsockname()[0])
            is_only_six = _is_only_six(self)
            with _alone(folder):
                are_apart = is_only_six or any(other.fileno() >= 0 for other in only_six)
                if not _has_server(here, port, are_apart):
                    self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                    bind(self, address)
                    # At once: until a socket listens, others can bind the port too.
                    socket.socket.listen(self, _BACKLOG)
                    if is_only_six:
                        only_six.add(self)
                    return
        bind(self, address)

    socket.socket.bind = bind_beside  # type: ignore[assignment, method-assign]


def _share_with_stores(module: ModuleType, head: str, held: int) -> None:
    store: Any = getattr(module, "TCPStore", None)
    if store is None:
        # This build of torch has no distributed package.
        return
    make = store.__init__

    @wraps(make)
    def make_beside(self: Any, host_name: str, port: int, *args: Any, **options: Any) -> None:
        # The order of arguments is: world_size, is_master, timeout, wait_for_workers, multi_tenant,
        # master_listen_fd, use_libuv.
        is_master = args[1] if len(args) > 1 else options.get("is_master")
        given = args[5] if len(args) > 5 else options.get("master_listen_fd")
        server: int | None = None
        if is_master and port == held and given is None:
            # If it cannot be bound, torch says so with an exception of its own.
            with suppress(OSError):
                # By default a store listens on all addresses. Ranks connect to that of the head.
                server = listen(host_name if host_name == head else None, port).detach()
        if server is not None and len(args) > 5:
            args = (*args[:5], server, *args[6:])
        elif server is not None:
            options["master_listen_fd"] = server
        try:
            make(self, host_name, port, *args, **options)
        except TypeError:
            # torch has not looked at the arguments.
            if server is not None:
                os.close(server)
            raise

    # In the class itself, which many modules of torch have imported.
    store.__init__ = make_beside


def listen(addr: str | None, port: int) -> socket.socket:
    """Return a socket that listens at this port, on an address or on all of them.

    Raises:
        OSError: the port cannot be bound.
    """
    both = addr is None and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else family_of(addr or "")
    return socket.create_server(bindable(addr or "", port), family=family, backlog=_BACKLOG, dualstack_ipv6=both)


@contextmanager
def _alone(folder: str) -> Iterator[None]:
    """Wait until no other worker of this node looks for servers or binds the port, nor a thread.

    Whoever has been stopped meanwhile is waited for only a moment: without the lock, two servers
    that begin at the same time may share the port.

    Args:
        folder: that of the generation, or an empty string if there is none.
    """
    try:
        # Opened anew each time: threads, and processes that are forked, have different locks then.
        lock = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        yield
        return
    try:
        end = time.monotonic() + _PATIENCE
        while not _is_locked(lock) and time.monotonic() < end:
            time.sleep(0.001)
        yield
    finally:
        # A process that was forked meanwhile has the descriptor too.
        flock(lock, LOCK_UN)
        os.close(lock)


def _is_locked(lock: int) -> bool:
    try:
        flock(lock, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _has_server(address: bytes, port: int, are_apart: bool) -> bool:
    """Return whether a socket listens at this port, where a server at this address would listen.

    With SO_REUSEPORT, a second one would get some of its connections.

    Args:
        address: the address, in the order of the network.
        port: the port.
        are_apart: whether all addresses of IPv6 do not include those of IPv4 here. The kernel's
            tables do not show that of other processes.
    """
    here = _plain(address)
    for there in _listening(port):
        is_included = any(not any(a) and len(a) >= len(b) for a, b in ((here, there), (there, here)))
        if (here == there or is_included) and (len(here) == len(there) or not are_apart):
            return True
    return False


def _is_only_six(server: socket.socket) -> bool:
    return server.family == socket.AF_INET6 and server.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY) == 1


def _listening(port: int) -> Iterator[bytes]:
    """Yield the addresses at which a socket listens at this port."""
    for family in ("tcp", "tcp6"):
        with suppress(OSError), open(f"/proc/self/net/{family}", encoding="utf-8") as table:
            for line in table:
                _, local, _, state, *_ = line.split(maxsplit=4)
                if state == _LISTENS and local.endswith(f":{port:04X}"):
                    # The kernel writes each 32 bits as a number of the machine.
                    words = (local[at : at + 8] for at in range(0, local.index(":"), 8))
                    yield _plain(b"".join(int(word, 16).to_bytes(4, sys.byteorder) for word in words))


def _plain(address: bytes) -> bytes:
    """Return an address; of one of IPv4 that is written as one of IPv6, the former."""
    return address.removeprefix(_MAPPED)


_BACKLOG = 1024
_PATIENCE = 2.0
"""Seconds to wait for the lock, which is held for milliseconds."""
_LISTENS = "0A"
"""TCP_LISTEN, as the kernel's tables of connections write it."""
_MAPPED = bytes(10) + b"\xff\xff"
