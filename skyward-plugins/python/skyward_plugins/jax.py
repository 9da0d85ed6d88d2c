"""Joins the workers into one JAX world before the first task."""

from __future__ import annotations

import atexit
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from skyward import instance_info

if TYPE_CHECKING:
    from skyward import InstanceInfo

_PROXIES = ("http_proxy", "https_proxy", "grpc_proxy", "all_proxy")


@contextmanager
def around_app(config: Mapping[str, Any]) -> Iterator[None]:
    """Enter `jax.distributed` with every worker of the pool as one process of the world.

    Args:
        config: `timeout`: what all workers together get to meet, in seconds.

    Raises:
        TimeoutError: not all ranks came to the rendezvous; names those that did not.
        RuntimeError: JAX was already in use, or the devices cannot be divided among the workers.
    """
    info = instance_info()
    if info.total_workers == 1:
        yield
        return
    devices = _local_devices(info)
    with _environment(_variables(info, devices)):
        _join(info, devices, float(config["timeout"]))
        try:
            yield
        except BaseException:
            # Leaving is a barrier: whoever failed would wait there for the others.
            _forget_barrier_at_exit()
            raise
        import jax

        jax.distributed.shutdown()


def _join(info: InstanceInfo, devices: list[int], timeout: float) -> None:
    import jax

    if jax.distributed.is_initialized():
        raise RuntimeError(
            "jax.distributed is already initialized; the jax plugin does that: remove the other call to initialize"
        )
    deadline = time.monotonic() + timeout
    _meet(info, timeout, deadline)
    address = _join_address(info.head_addr, info.head_port)
    if not info.accelerators:
        _bind_gloo(info.addr)
    with _kept_signals():
        jax.distributed.initialize(
            coordinator_address=address,
            num_processes=info.total_workers,
            process_id=info.global_worker_index,
            # Never None: JAX would ask Slurm, MPI and others for what is missing, and believe them.
            local_device_ids=devices,
            coordinator_bind_address=address,
            initialization_timeout=max(10, round(deadline - time.monotonic())),
        )


def _variables(info: InstanceInfo, devices: list[int]) -> dict[str, str]:
    variables = {
        "JAX_COORDINATOR_ADDRESS": _join_address(info.head_addr, info.head_port),
        "JAX_NUM_PROCESSES": str(info.total_workers),
        "JAX_PROCESS_ID": str(info.global_worker_index),
        "JAX_LOCAL_DEVICE_COUNT": str(len(devices)),
    }
    if not info.accelerators and "JAX_CPU_COLLECTIVES_IMPLEMENTATION" not in os.environ:
        variables["JAX_CPU_COLLECTIVES_IMPLEMENTATION"] = "gloo"
    if not any(os.environ.get(name) or os.environ.get(name.upper()) for name in _PROXIES):
        return variables
    # The coordination service speaks gRPC, which would go to the peers through the proxy.
    peers = list(dict.fromkeys([info.head_addr, *(peer.addr for peer in info.peers)]))
    for name in ("no_proxy", "NO_PROXY"):
        known = [part for part in os.environ.get(name, "").split(",") if part]
        variables[name] = ",".join(known + [addr for addr in peers if addr not in known])
    return variables


def _local_devices(info: InstanceInfo) -> list[int]:
    """The accelerators of this worker, as indices into those that this process can see."""
    if not info.accelerators:
        return [0]
    share, rest = divmod(info.accelerators, info.workers_per_node)
    if rest or not share:
        raise RuntimeError(
            f"{info.workers_per_node} workers cannot share the {info.accelerators} accelerators of a node evenly"
        )
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    visible = info.accelerators if seen is None else len([part for part in seen.split(",") if part.strip()])
    if visible == info.accelerators:
        return list(range(info.worker * share, (info.worker + 1) * share))
    if visible == share or (info.workers_per_node == 1 and visible):
        return list(range(visible))
    raise RuntimeError(
        f"CUDA_VISIBLE_DEVICES={seen} shows {visible} devices to worker {info.worker}, which should see its own "
        f"{share} or all {info.accelerators} of the node"
    )


def _meet(info: InstanceInfo, timeout: float, deadline: float) -> None:
    """Wait until every rank is there.

    JAX ends the process when a rank does not come. So the ranks meet here first, at the same address, where a rank that
    is missing is an exception that says which.
    """
    if info.global_worker_index == 0:
        _receive(info, timeout, deadline)
    else:
        _report(info, timeout, deadline)


def _receive(info: InstanceInfo, timeout: float, deadline: float) -> None:
    """As rank 0: wait for all others, then send them on."""
    here: dict[int, socket.socket] = {}
    greeting = _greeting(info)
    try:
        with _listener(info.head_addr, info.head_port) as listener:
            while len(here) < info.total_workers - 1:
                remaining = deadline - time.monotonic()
                try:
                    if remaining <= 0:
                        raise TimeoutError
                    listener.settimeout(remaining)
                    connection, _ = listener.accept()
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
        # JAX's own service takes the place of the listener, which is closed by now.
        for connection in here.values():
            with suppress(OSError):
                connection.sendall(b"go\n")
    finally:
        for connection in here.values():
            connection.close()


def _report(info: InstanceInfo, timeout: float, deadline: float) -> None:
    """As any other rank: tell rank 0, wait for its word, and then until JAX's service listens there."""
    place = f"rank 0 at {_join_address(info.head_addr, info.head_port)}"
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
    _connect(info, timeout, deadline).close()


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
                    f"{_join_address(info.head_addr, info.head_port)} within {timeout:g} s: {error}; its worker may "
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
        f"{_join_address(info.head_addr, info.head_port)} within {timeout:g} s; missing: {', '.join(missing)}. "
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
    """What the other side says up to the line's end, or up to its own; at most 4 KiB."""
    data = b""
    while len(data) < 4096:
        more = connection.recv(4096 - len(data))
        data += more
        if not more or data.endswith(b"\n"):
            break
    return data.decode(errors="replace").rstrip("\n")


def _listener(addr: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in addr else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # The agent holds the port so that nobody else is handed it.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((addr, port))
        listener.listen(1024)
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"rank 0 cannot listen at {_join_address(addr, port)}: {error.strerror}") from error
    return listener


def _bind_gloo(addr: str) -> None:
    """Have gloo use this node's address.

    By itself it takes whatever the host's name resolves to: often a loopback address that no peer reaches, or nothing.
    JAX has no option for it.
    """
    with suppress(ImportError, AttributeError):
        from jax._src import xla_bridge

        library = xla_bridge._jax
        make = library.make_gloo_tcp_collectives

        def make_here(**arguments: Any) -> Any:
            library.make_gloo_tcp_collectives = make
            return make(**{"hostname": addr, **arguments})

        library.make_gloo_tcp_collectives = make_here


def _forget_barrier_at_exit() -> None:
    """Keep JAX from leaving the world when the interpreter ends."""
    with suppress(ImportError, AttributeError):
        from jax._src import api

        atexit.unregister(api.clean_up)


@contextmanager
def _kept_signals() -> Iterator[None]:
    """Put back the worker's signal handlers: JAX takes SIGTERM away from Python, which never notices."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in kept.items():
        if handler is not None:
            signal.signal(number, handler)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """These environment variables, and afterwards those that were."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _join_address(addr: str, port: int) -> str:
    return f"[{addr}]:{port}" if ":" in addr else f"{addr}:{port}"
