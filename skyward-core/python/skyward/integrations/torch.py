"""PyTorch's process group."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, overload

from .. import _world
from .._cluster import InstanceInfo, instance_info
from . import _torch_world
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
    """Make the process group of all workers, or of this one where it runs a task alone, if it does not exist.

    Raises:
        RuntimeError: the pool does not know of the world, or there is no accelerator for this worker.
        TimeoutError: not all ranks came; names those that did not.
    """
    if info.total_workers == 1:
        return
    gang = together(info)
    import torch.distributed as dist
    from torch import cuda

    if gang:
        set_world(info, on_cpu=not cuda.is_available())
    if dist.is_initialized():
        return
    found = info.accelerators or (cuda.is_available() and dist.is_nccl_available())
    backend = backend or ("nccl" if found else "gloo")
    if not gang:
        _torch_world.take_device(info, backend)
        _world.group_of_one(backend)
        return
    _torch_world.join(info, backend, _torch_world.TIMEOUT, None)
    atexit.register(_leave, dist)


def _leave(dist: Any) -> None:
    """At the worker's end: destroy the process group, if the payload has not."""
    if dist.is_initialized():
        dist.destroy_process_group()


def set_world(info: InstanceInfo, on_cpu: bool) -> None:
    """The variables by which PyTorch, and what builds on it, know the world."""
    _world.join()
    set_environment(_torch_world.variables(info, on_cpu))
