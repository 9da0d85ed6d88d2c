"""`sky.integrations.torch`: join PyTorch's process group."""

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
    """Decorator: create the default process group of `torch.distributed` before the function runs.

    All workers of the pool are ranks of the group. In a task on a single worker of a larger pool,
    the group has one rank. The decorator does nothing in a pool of one worker, or if the process
    group exists already.

    Args:
        function: the function to decorate.
        backend: `"nccl"` or `"gloo"`; None for `nccl` if the worker has a CUDA device, otherwise
            `gloo`.

    Example:
        @sky.integrations.torch
        def train(): ...
    """

    def prepare() -> None:
        join(instance_info(), backend)

    return decorator(function, prepare)


def join(info: InstanceInfo, backend: str | None = None) -> None:
    """Create the process group if it does not exist: of all workers, or of this one alone.

    Raises:
        RuntimeError: the pool does not know of the world, or there is no accelerator for this
            worker.
        TimeoutError: some ranks did not come; the message names them.
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
    """At the worker's end, destroy the process group if the payload has not."""
    if dist.is_initialized():
        dist.destroy_process_group()


def set_world(info: InstanceInfo, on_cpu: bool) -> None:
    """Set the variables through which PyTorch, and packages based on it, find the world."""
    _world.join()
    set_environment(_torch_world.variables(info, on_cpu))
    _torch_world.share_port(info)
