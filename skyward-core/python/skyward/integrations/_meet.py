"""The rendezvous of the ranks of a world, before a framework joins them.

If a rank is missing, JAX ends the process, and torch does not name the rank. So the ranks meet here
first, at the same address, and a missing rank is an exception that names it.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress

from .._libraries.head_port import listen
from .._sky.cluster import InstanceInfo


def meet(info: InstanceInfo, timeout: float, deadline: float, service: bool = True) -> None:
    """Wait until every rank has come.

    Args:
        info: this worker's place.
        timeout: seconds within which all ranks must come, for messages.
        deadline: the end of that time, on the monotonic clock.
        service: whether the framework's service will listen at the address when all have come, so
            that the other ranks wait for it.

    Raises:
        TimeoutError: some ranks did not come; the message names them.
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
    """On rank 0: wait for all other ranks, then let them continue."""
    here: dict[int, socket.socket] = {}
    greeting = _greeting(info)
    try:
        with _listen(info) as server:
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
        # The listener is closed here, so that the framework's own service can take its place.
        for connection in here.values():
            with suppress(OSError):
                connection.sendall(b"go\n")
    finally:
        for connection in here.values():
            connection.close()


def _listen(info: InstanceInfo) -> socket.socket:
    try:
        return listen(info.head_addr, info.head_port)
    except OSError as error:
        place = join_address(info.head_addr, info.head_port)
        raise OSError(error.errno, f"rank 0 cannot listen at {place}: {error.strerror}") from error


def _report(info: InstanceInfo, timeout: float, deadline: float) -> None:
    """On any other rank: report to rank 0, and wait for its answer."""
    place = f"rank 0 at {join_address(info.head_addr, info.head_port)}"
    with _connect(info, timeout, deadline) as connection:
        connection.sendall(f"{_greeting(info)} {info.global_worker_index}\n".encode())
        # Rank 0 stops at its own deadline and sends the reason; leave it time for that.
        connection.settimeout(max(0.1, deadline - time.monotonic()) + 5)
        try:
            answer = _line(connection)
        except TimeoutError:
            raise TimeoutError(f"{place} did not answer rank {info.global_worker_index} within {timeout:g} s") from None
        except OSError as error:
            raise ConnectionError(f"{place} ended before all ranks had come: {error}") from error
    if not answer:
        raise ConnectionError(f"{place} ended before all ranks had come; the output of its worker shows why")
    if answer != "go":
        raise TimeoutError(answer)


def _connect(info: InstanceInfo, timeout: float, deadline: float) -> socket.socket:
    """Connect to the rendezvous port of the head, as soon as something listens there."""
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
        # Rank 0 is still importing modules. There is no event to wait for, so poll.
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
    """Read the rank from a connection; None if it is not from a rank of this world."""
    connection.settimeout(2)
    try:
        text, _, rank = _line(connection).rpartition(" ")
    except OSError:
        return None
    return int(rank) if text == greeting and rank.isdecimal() else None


def _line(connection: socket.socket) -> str:
    """Read a line of at most 4 KiB, within the socket's timeout.

    The end of the stream ends the line too.
    """
    data = b""
    deadline = time.monotonic() + (connection.gettimeout() or 0)
    while len(data) < 4096:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        more = connection.recv(4096 - len(data))
        data += more
        if not more or data.endswith(b"\n"):
            break
    return data.decode(errors="replace").rstrip("\n")


def join_address(addr: str, port: int) -> str:
    """Join host and port, with an IPv6 address in brackets."""
    return f"[{addr}]:{port}" if ":" in addr else f"{addr}:{port}"
