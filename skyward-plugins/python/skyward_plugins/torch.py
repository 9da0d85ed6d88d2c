"""Joins the workers into one `torch.distributed` process group before the first task."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from skyward import instance_info

if TYPE_CHECKING:
    from skyward import InstanceInfo


@contextmanager
def around_app(config: Mapping[str, Any]) -> Iterator[None]:
    """Enter the default process group with every worker of the pool as one rank.

    Args:
        config: `collectives`: nccl, gloo or auto (nccl with accelerators, else gloo). `timeout`: what all workers
            together get to meet, in seconds. `collective_timeout`: what one collective operation may take, in seconds;
            None for torch's own.

    Raises:
        TimeoutError: not all ranks came to the rendezvous; names those that did not.
        RuntimeError: a process group was already there, or there is no accelerator for this worker.
    """
    info = instance_info()
    if info.total_workers == 1:
        yield
        return
    with _environment(_variables(info)):
        _join(info, config)
        # No `finally`: leaving may wait for the others, who would wait for one that failed.
        yield
        import torch.distributed as dist

        if dist.is_initialized():
            dist.destroy_process_group()


def _join(info: InstanceInfo, config: Mapping[str, Any]) -> None:
    import torch
    import torch.distributed as dist

    if dist.is_initialized():
        raise RuntimeError(
            "torch.distributed already has a process group; the torch plugin makes it: remove the other call to "
            "init_process_group"
        )
    backend: str = config["collectives"]
    if backend == "auto":
        backend = "nccl" if info.accelerators else "gloo"
    options: dict[str, Any] = {}
    if info.accelerators and torch.cuda.is_available():
        device = torch.device("cuda", _device_index(info, torch.cuda.device_count()))
        torch.cuda.set_device(device)
        if backend == "nccl":
            # With it the communicator is made at once, so that a network that does not work is found here.
            options["device_id"] = device
    elif backend == "nccl":
        raise RuntimeError(
            f"torch {torch.__version__} sees no accelerator on node {info.node}, and NCCL needs one: the driver is "
            "missing or too old for this build (choose one with `plugins::torch().cuda(…)`)"
        )
    if config["collective_timeout"] is not None:
        options["timeout"] = timedelta(seconds=config["collective_timeout"])
    store = _meet(info, float(config["timeout"]))
    dist.init_process_group(
        backend, store=store, rank=info.global_worker_index, world_size=info.total_workers, **options
    )


def _meet(info: InstanceInfo, timeout: float) -> Any:
    """The store of the process group, once every rank is there."""
    import torch.distributed as dist

    rank, total = info.global_worker_index, info.total_workers
    place = f"{info.head_addr}:{info.head_port}"
    deadline = time.monotonic() + timeout
    options: dict[str, Any] = {"timeout": timedelta(seconds=timeout), "wait_for_workers": False}
    try:
        if rank == 0:
            # By itself the store listens on every address of the host.
            options["master_listen_fd"] = _listener(info.head_addr, info.head_port).detach()
        store = dist.TCPStore(info.head_addr, info.head_port, total, rank == 0, **options)
    except Exception as error:
        what = "listen" if rank == 0 else "reach rank 0"
        raise TimeoutError(
            f"rank {rank} of {total} could not {what} at {place} within {timeout:g} s: {error}"
        ) from error
    prefix = f"skyward/{info.job_id}/{info.generation}/"
    store.set(f"{prefix}{rank}", b"here")
    keys = [f"{prefix}{other}" for other in range(total)]
    try:
        store.wait(keys, timedelta(seconds=max(0.1, deadline - time.monotonic())))
    except Exception as error:
        raise TimeoutError(_missing(info, store, prefix, timeout, error)) from error
    # What one collective may wait for the store is torch's own business again.
    store.set_timeout(timedelta(minutes=5))
    return store


def _missing(info: InstanceInfo, store: Any, prefix: str, timeout: float, error: Exception) -> str:
    place = f"{info.head_addr}:{info.head_port}"
    addresses = {peer.node: peer.addr for peer in info.peers}
    missing = []
    try:
        for rank in range(info.total_workers):
            if not store.check([f"{prefix}{rank}"]):
                node, worker = divmod(rank, info.workers_per_node)
                missing.append(f"rank {rank} (node {node}, worker {worker}, {addresses.get(node, 'address unknown')})")
    except Exception:
        return f"rank 0 at {place} ended before all ranks had come: {error}"
    return (
        f"{info.total_workers - len(missing)} of {info.total_workers} ranks came to the rendezvous at {place} within "
        f"{timeout:g} s; missing: {', '.join(missing)}. Their workers ended or cannot reach that address: their logs "
        "say which"
    )


def _listener(addr: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in addr else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # The agent holds the port so that nobody else is handed it.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((addr, port))
        listener.listen(1024)
    except OSError:
        listener.close()
        raise
    return listener


def _device_index(info: InstanceInfo, visible: int) -> int:
    """This worker's accelerator among those that this process can see."""
    if visible == 1:
        return 0
    if info.worker < visible:
        return info.worker
    raise RuntimeError(
        f"worker {info.worker} of node {info.node} has no accelerator of its own: {info.workers_per_node} workers see "
        f"{visible}; ask for at most that many with `.workers_per_node(…)`"
    )


def _variables(info: InstanceInfo) -> dict[str, str]:
    variables = {
        "MASTER_ADDR": info.head_addr,
        "MASTER_PORT": str(info.head_port),
        "WORLD_SIZE": str(info.total_workers),
        "RANK": str(info.global_worker_index),
        "LOCAL_RANK": str(info.worker),
        "LOCAL_WORLD_SIZE": str(info.workers_per_node),
        "GROUP_RANK": str(info.node),
        "GROUP_WORLD_SIZE": str(info.total_nodes),
    }
    interface = _interface(info)
    if interface is not None:
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            if name not in os.environ:
                variables[name] = interface
    if info.workers_per_node > 1 and "OMP_NUM_THREADS" not in os.environ:
        # Otherwise each of them starts a thread per core.
        cores = len(os.sched_getaffinity(0))
        variables["OMP_NUM_THREADS"] = str(max(1, cores // info.workers_per_node))
    return variables


def _interface(info: InstanceInfo) -> str | None:
    """The network interface that carries this node's address; left alone, the libraries guess by the host's name."""
    if info.network.interface is not None:
        return info.network.interface
    if info.addr.startswith("127."):
        return "lo"
    get_address = 0x8915  # SIOCGIFADDR
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(probe, get_address, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue
            if socket.inet_ntoa(answer[20:24]) == info.addr:
                return name
    return None


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
