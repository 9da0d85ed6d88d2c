"""PyTorch's process group."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, overload

from .. import _world
from .._cluster import InstanceInfo, instance_info
from ._wrap import decorator, set_environment, together

P = ParamSpec("P")
R = TypeVar("R")


@overload
def torch(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def torch(*, backend: str | None = None) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def torch(function: Callable[..., Any] | None = None, /, *, backend: str | None = None) -> Any:
    """Join `torch.distributed` before the function runs; with or without arguments.

    In a task that this worker runs alone the process group has one rank, whatever the world is. Nothing happens in a
    pool of one worker, nor where the process group exists already (a plugin made it, or an earlier call).

    Args:
        function: what to decorate.
        backend: `nccl` or `gloo`; unless given, `nccl` where the worker has a CUDA device.
    """

    def prepare() -> None:
        join(instance_info(), backend)

    return decorator(function, prepare)


def join(info: InstanceInfo, backend: str | None = None) -> None:
    """Make the process group of all workers, or of this one where it runs a task alone, if it does not exist."""
    if info.total_workers == 1:
        return
    gang = together(info)
    if gang:
        set_world(info)
    import torch.distributed as dist
    from torch import cuda, device

    if dist.is_initialized():
        return
    backend = backend or ("nccl" if cuda.is_available() and dist.is_nccl_available() else "gloo")
    options: dict[str, Any] = {}
    if backend == "nccl":
        # With fewer devices than workers each worker sees its own as the first.
        index = info.worker % max(cuda.device_count(), 1)
        cuda.set_device(index)
        options["device_id"] = device("cuda", index)
    if not gang:
        _world.group_of_one(backend)
        return
    dist.init_process_group(
        backend,
        init_method=f"tcp://{_host(info.head_addr)}:{info.head_port}",
        rank=info.global_worker_index,
        world_size=info.total_workers,
        **options,
    )
    atexit.register(_leave, dist)


def _leave(dist: Any) -> None:
    """At the worker's end: destroy the process group, if the payload has not."""
    if dist.is_initialized():
        dist.destroy_process_group()


def set_world(info: InstanceInfo) -> None:
    """The variables by which PyTorch, and what builds on it, know the world."""
    _world.join()
    set_environment(
        {
            "MASTER_ADDR": info.head_addr,
            "MASTER_PORT": info.head_port,
            "WORLD_SIZE": info.total_workers,
            "RANK": info.global_worker_index,
            "LOCAL_RANK": info.worker,
            "LOCAL_WORLD_SIZE": info.workers_per_node,
            "GROUP_RANK": info.node,
        }
    )
    if info.network.interface:
        set_environment({"GLOO_SOCKET_IFNAME": info.network.interface, "NCCL_SOCKET_IFNAME": info.network.interface})


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address
