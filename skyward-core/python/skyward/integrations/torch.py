"""`sky.integrations.torch`: join PyTorch's process group."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar, overload

from .._libraries import world
from .._sky.cluster import InstanceInfo, instance_info
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
    return decorator(function, lambda: joined(instance_info(), backend))


@contextmanager
def joined(info: InstanceInfo, backend: str | None = None) -> Iterator[None]:
    """Create the process group if it does not exist: of all workers, or of this one alone.

    A group that an earlier task has destroyed, or left in different states, is made again.

    Raises:
        RuntimeError: the pool does not know of the world, or there is no accelerator for this
            worker.
        TimeoutError: some ranks did not come; the message names them.
    """
    if info.total_workers == 1:
        yield
        return
    gang = together(info)
    import torch.distributed as dist
    from torch import cuda

    found = info.accelerators or (cuda.is_available() and dist.is_nccl_available())
    backend = backend or ("nccl" if found else "gloo")
    if not gang:
        if not dist.is_initialized():
            _torch_world.take_device(info, backend)
            world.group_of_one(backend)
        yield
        return
    set_world(info, on_cpu=not cuda.is_available())
    with _torch_world.around_gang(info, _torch_world.TIMEOUT):
        if not dist.is_initialized():
            _torch_world.join(info, backend, _torch_world.TIMEOUT, None)
            atexit.register(_leave, dist)
        yield


def _leave(dist: Any) -> None:
    """At the worker's end, destroy the process group if the payload has not."""
    if dist.is_initialized():
        dist.destroy_process_group()


def set_world(info: InstanceInfo, on_cpu: bool) -> None:
    """Set the variables through which PyTorch, and packages based on it, find the world."""
    world.join()
    set_environment(_torch_world.variables(info, on_cpu))
