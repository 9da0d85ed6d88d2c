"""torch's default process group, with every worker of the pool as one rank."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from .._core import state
from .._libraries.world import group_of_one
from .._sky.cluster import InstanceInfo
from . import _torch_groups, _torch_store
from ._meet import meet

TIMEOUT = 240.0
"""Seconds within which all workers must meet. A pool allows hooks more time, so the error here
names the missing ranks.
"""


def join(info: InstanceInfo, collectives: str, timeout: float, collective_timeout: float | None) -> None:
    """Create the process group of all workers.

    Args:
        info: this worker's place.
        collectives: `nccl`, `gloo`, or `auto`: nccl with accelerators, otherwise gloo.
        timeout: seconds within which all workers must meet.
        collective_timeout: seconds that one collective operation may take; None for torch's
            default.

    Raises:
        TimeoutError: some ranks did not come to the rendezvous; the message names them.
        RuntimeError: there is no accelerator for this worker.
    """
    import torch
    import torch.distributed as dist

    backend = ("nccl" if info.accelerators else "gloo") if collectives == "auto" else collectives
    options: dict[str, Any] = {}
    device = take_device(info, backend)
    if device is not None and backend == "nccl":
        # With a device id the communicator is created at once, so that network problems are found
        # here.
        options["device_id"] = torch.device("cuda", device)
    if collective_timeout is not None:
        options["timeout"] = timedelta(seconds=collective_timeout)

    def make(store: Any) -> None:
        place = {"rank": info.global_worker_index, "world_size": info.total_workers}
        dist.init_process_group(backend, store=store, **place, **options)

    world = _torch_store.world() or _store(info, timeout)
    make(_torch_store.of_next_group(info.total_workers))
    world.make, world.backend = make, backend


@contextmanager
def around_gang(info: InstanceInfo, timeout: float, met: bool = False) -> Iterator[None]:
    """Give a gang process groups in which no rank has anything left of an earlier task.

    Args:
        info: this worker's place.
        timeout: seconds within which all workers must meet, if this is their first gang.
        met: whether the ranks have met already, without leaving a store.

    Raises:
        TimeoutError: some ranks did not come; the message names them.
        RuntimeError: some ranks did not begin the gang; the message names them.
    """
    world = _torch_store.world() or _store(info, timeout, met)
    if state.attempt in (None, world.attempt):
        # No gang runs, or a hook or another decorator is around this one.
        yield
        return
    world.attempt = state.attempt
    _torch_groups.settle(info, world)
    before = _torch_groups.groups(info.total_workers)
    try:
        yield
    except BaseException:
        world.ending = "failed" if _torch_groups.groups(info.total_workers) == before else "half way"
        raise
    world.ending = "well"


def alone() -> None:
    """Let a task on a single worker find a group of one, if the world has a group."""
    world = _torch_store.world()
    if world is not None and world.backend is not None:
        group_of_one(world.backend)


def take_device(info: InstanceInfo, backend: str) -> int | None:
    """Select this worker's accelerator for CUDA; return its index, or None if torch uses none.

    Raises:
        RuntimeError: torch finds no accelerator, although the pool has requested some or NCCL needs
            one.
    """
    import torch

    if torch.cuda.is_available() and (info.accelerators or backend == "nccl"):
        index = device_index(info, torch.cuda.device_count())
        torch.cuda.set_device(index)
        return index
    if backend == "nccl":
        raise RuntimeError(
            f"torch {torch.__version__} sees no accelerator on node {info.node}, and NCCL needs one: the driver is "
            "missing or too old for this build (choose another build with `.cuda(…)` of the plugin that installs torch)"
        )
    return None


def _store(info: InstanceInfo, timeout: float, met: bool = False) -> _torch_store.World:
    """Open the store of the world's process groups, when every rank has come."""
    import torch.distributed as dist

    deadline = time.monotonic() + timeout
    if not met:
        meet(info, timeout, deadline)
    rank, total = info.global_worker_index, info.total_workers
    left = timedelta(seconds=max(5.0, deadline - time.monotonic()))
    try:
        store = dist.TCPStore(info.head_addr, info.head_port, total, rank == 0, timeout=left, wait_for_workers=False)
    except Exception as error:
        what = "listen" if rank == 0 else "reach rank 0"
        place = f"{info.head_addr}:{info.head_port}"
        raise TimeoutError(
            f"rank {rank} of {total} could not {what} at {place} within {timeout:g} s: {error}"
        ) from error
    # From here on, torch's default applies to the time that a collective waits for the store.
    store.set_timeout(timedelta(minutes=5))
    return _torch_store.keep(info, store)


def device_index(info: InstanceInfo, visible: int) -> int:
    """Return this worker's accelerator, as an index into the devices that this process sees."""
    if visible == 1:
        return 0
    if info.worker < visible:
        return info.worker
    raise RuntimeError(
        f"worker {info.worker} of node {info.node} has no accelerator of its own: {info.workers_per_node} workers see "
        f"{visible}; ask for at most that many with `.workers_per_node(…)`"
    )


def variables(info: InstanceInfo, on_cpu: bool) -> dict[str, str]:
    """Return the environment variables through which PyTorch and its users find the world.

    Args:
        info: this worker's place.
        on_cpu: whether the world computes on CPUs. Accelerate then needs a variable, or each rank
            would silently train alone.
    """
    values = {
        "MASTER_ADDR": info.head_addr,
        "MASTER_PORT": str(info.head_port),
        "WORLD_SIZE": str(info.total_workers),
        "RANK": str(info.global_worker_index),
        "LOCAL_RANK": str(info.worker),
        "LOCAL_WORLD_SIZE": str(info.workers_per_node),
        "GROUP_RANK": str(info.node),
        "GROUP_WORLD_SIZE": str(info.total_nodes),
    }
    if info.network.interface is not None:
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            if name not in os.environ:
                values[name] = info.network.interface
    if on_cpu and "ACCELERATE_USE_CPU" not in os.environ:
        values["ACCELERATE_USE_CPU"] = "true"
    return values
