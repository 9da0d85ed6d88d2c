"""Servers of this process at the head port, beside the socket with which the agent holds it.

The agent holds the port so that no other user of the host can bind it. A server can if it has the
same user and sets SO_REUSEPORT. gRPC does so by itself. Python's sockets and torch's stores, which
do not, get the option here. As without it, a second server at the port is refused.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import suppress
from functools import wraps
from types import ModuleType
from typing import Any

from ._on_import import on_import


def share(cluster: Mapping[str, Any]) -> None:
    """Let servers of this process bind the head port, if this worker is on the head.

    Args:
        cluster: the worker's place, as the start spec has it.
    """
    head, port = cluster.get("head_addr"), cluster.get("head_port")
    if cluster.get("node") == 0 and head and port:
        _share_with_sockets(port)
        on_import("torch.distributed", lambda module: _share_with_stores(module, head, port))


def _share_with_sockets(port: int) -> None:
    # The class in Python, which has no `bind` of its own, and from which `ssl` and others inherit.
    bind = socket.socket.bind

    @wraps(bind)
    def bind_beside(self: socket.socket, address: Any, /) -> None:
        is_tcp = self.family in (socket.AF_INET, socket.AF_INET6) and self.type == socket.SOCK_STREAM
        if is_tcp and address[1:2] == (port,) and not _has_server(port):
            self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
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
        # master_listen_fd.
        is_master = args[1] if len(args) > 1 else options.get("is_master")
        listens = len(args) > 5 or "master_listen_fd" in options
        if is_master and port == held and not listens and not _has_server(port):
            # By default a store listens on all addresses. Ranks connect to that of the head.
            server = listen(host_name if host_name == head else None, port)
            options["master_listen_fd"] = server.detach()
        make(self, host_name, port, *args, **options)

    # In the class itself, which many modules of torch have imported.
    store.__init__ = make_beside


def listen(addr: str | None, port: int) -> socket.socket:
    """Return a socket that listens at this port, on an address or on all of them.

    Raises:
        OSError: the port cannot be bound.
    """
    both = addr is None and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both or ":" in (addr or "") else socket.AF_INET
    place = (addr or "", port)
    return socket.create_server(place, family=family, backlog=_BACKLOG, reuse_port=True, dualstack_ipv6=both)


def _has_server(port: int) -> bool:
    """Return whether a socket listens at this port.

    With SO_REUSEPORT, a second one would get some of its connections.
    """
    for family in ("tcp", "tcp6"):
        with suppress(OSError), open(f"/proc/self/net/{family}", encoding="ascii") as table:
            for line in table:
                _, local, _, state, *_ = line.split(maxsplit=4)
                if state == _LISTENS and local.endswith(f":{port:04X}"):
                    return True
    return False


_BACKLOG = 1024
_LISTENS = "0A"
"""TCP_LISTEN, as the kernel's tables of connections write it."""
