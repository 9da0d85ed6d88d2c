"""Where the ranks of a world meet before a framework joins them.

JAX ends the process when a rank does not come, and torch does not say which. So the ranks meet here first, at the same
address, where a rank that is missing is an exception that names it.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress

from .._cluster import InstanceInfo


def meet(info: InstanceInfo, timeout: float, deadline: float, service: bool = True) -> None:
    """Wait until every rank is there.

    Args:
        info: this worker's place.
        timeout: what all ranks together get, in seconds, for messages.
        deadline: when that is over, by the monotonic clock.
        service: whether the framework's service listens there as soon as all have met, so that the others wait for it.

    Raises:
        TimeoutError: not all ranks came; names those that did not.
        ConnectionError: rank 0 ended meanwhile.
        OSError: rank 0 cannot listen at its address.
    """
    if info.global_worker_index == 0:
        _receive(info, timeout, deadline)
    else:
        _report(info, timeout, deadline)
        if service:
            _connect(info, timeout, deadline).close()


def _receive(info: InstanceInfo, timeout: float, deadline: float) -> None:
    """As rank 0: wait for all others, then send them on."""
    here: dict[int, socket.socket] = {}
    greeting = _greeting(info)
    try:
        with listener(info.head_addr, info.head_port) as server:
            while len(here) < info.total_workers - 1:
                remaining = deadline - time.monotonic()
                try:
                    if remaining <= 0:
                        raise TimeoutError
                    server.settimeout(remaining)
                    connection, _ = server.accept()
                except TimeoutError:
                    text = _missing(info, set(here), timeout)
                    for connection in here.values():
                        with suppress(OSError):
                            connection.sendall(text.encode() + b"\n")
                    raise TimeoutError(text) from None
                rank = _rank_of(connection, greeting)
                if rank is None or not 0 < rank < info.total_workers:
                    connection.close()
                else:
                    here[rank] = connection
        # The framework's own service takes the place of the listener, which is closed by now.
        for connection in here.values():
            with suppress(OSError):
                connection.sendall(b"go\n")
    finally:
        for connection in here.values():
            connection.close()


def _report(info: InstanceInfo, timeout: float, deadline: float) -> None:
    """As any other rank: report to rank 0, and wait for its answer."""
    place = f"rank 0 at {join_address(info.head_addr, info.head_port)}"
    with _connect(info, timeout, deadline) as connection:
        connection.sendall(f"{_greeting(info)} {info.global_worker_index}\n".encode())
        # Rank 0 gives up at its own deadline, and says why: leave it the time to.
        connection.settimeout(max(0.1, deadline - time.monotonic()) + 5)
        try:
            answer = _line(connection)
        except TimeoutError:
            raise TimeoutError(f"{place} did not answer rank {info.global_worker_index} within {timeout:g} s") from None
        except OSError as error:
            raise ConnectionError(f"{place} ended before all ranks had come: {error}") from error
    if not answer:
        raise ConnectionError(f"{place} ended before all ranks had come; its worker's log says why")
    if answer != "go":
        raise TimeoutError(answer)


def _connect(info: InstanceInfo, timeout: float, deadline: float) -> socket.socket:
    """A connection to the head's rendezvous port, as soon as something listens there."""
    while True:
        remaining = deadline - time.monotonic()
        try:
            return socket.create_connection((info.head_addr, info.head_port), timeout=max(0.1, min(remaining, 5)))
        except OSError as error:
            if remaining <= 0:
                raise TimeoutError(
                    f"rank {info.global_worker_index} of {info.total_workers} could not reach rank 0 at "
                    f"{join_address(info.head_addr, info.head_port)} within {timeout:g} s: {error}; its worker may "
                    "have ended, or a firewall keeps the nodes apart"
                ) from error
        # Rank 0 is still importing. There is nothing to wait on, so this looks again.
        threading.Event().wait(0.02)


def _missing(info: InstanceInfo, here: set[int], timeout: float) -> str:
    addresses = {peer.node: peer.addr for peer in info.peers}
    missing = []
    for rank in range(1, info.total_workers):
        if rank not in here:
            node, worker = divmod(rank, info.workers_per_node)
            missing.append(f"rank {rank} (node {node}, worker {worker}, {addresses.get(node, 'address unknown')})")
    return (
        f"{len(here) + 1} of {info.total_workers} ranks came to the rendezvous at "
        f"{join_address(info.head_addr, info.head_port)} within {timeout:g} s; missing: {', '.join(missing)}. "
        "Their workers ended or cannot reach that address: their logs say which"
    )


def _greeting(info: InstanceInfo) -> str:
    return f"skyward {info.job_id} {info.generation}"


def _rank_of(connection: socket.socket, greeting: str) -> int | None:
    """The rank that a connection says it is; None for whoever else knocks."""
    connection.settimeout(2)
    try:
        text, _, rank = _line(connection).rpartition(" ")
    except OSError:
        return None
    return int(rank) if text == greeting and rank.isdecimal() else None


def _line(connection: socket.socket) -> str:
    """What the other side says up to the line's end, or up to its own; at most 4 KiB, within the socket's timeout."""
    data = b""
    deadline = time.monotonic() + (connection.gettimeout() or 0)
    while len(data) < 4096:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        more = connection.recv(4096 - len(data))
        data += more
        if not more or data.endswith(b"\n"):
            break
    return data.decode(errors="replace").rstrip("\n")


def listener(addr: str, port: int) -> socket.socket:
    """A socket that listens at the rendezvous port, which the agent holds beside it."""
    family = socket.AF_INET6 if ":" in addr else socket.AF_INET
    server = socket.socket(family, socket.SOCK_STREAM)
    try:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # The agent holds the port so that nobody else is handed it.
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        server.bind((addr, port))
        server.listen(1024)
    except OSError as error:
        server.close()
        raise OSError(error.errno, f"rank 0 cannot listen at {join_address(addr, port)}: {error.strerror}") from error
    return server


def join_address(addr: str, port: int) -> str:
    """Host and port as one text, with IPv6 in brackets."""
    return f"[{addr}]:{port}" if ":" in addr else f"{addr}:{port}"
