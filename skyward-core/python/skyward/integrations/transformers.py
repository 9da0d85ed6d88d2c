"""`sky.integrations.transformers`: what the `Trainer` of Hugging Face needs to find the world."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar, overload

from .._libraries import world
from .._sky.cluster import InstanceInfo, instance_info
from . import _torch_world
from ._wrap import decorator, set_environment, together
from .torch import joined, set_world

P = ParamSpec("P")
R = TypeVar("R")


@overload
def transformers(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def transformers(*, backend: str | None = None) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def transformers(function: Callable[..., Any] | None = None, /, *, backend: str | None = None) -> Any:
    """Decorator: let `Trainer` and Accelerate find the world before the function runs.

    By default `Trainer` and Accelerate create the process group themselves, because only then their
    own timeout and choice of backend apply. With `backend`, the group is created before they look
    for it. On nodes without an accelerator, their use of the CPU is switched on, or every worker
    would silently train alone. In a task on a single worker they find no world, and only this
    worker's own accelerator.

    Args:
        function: the function to decorate.
        backend: `"nccl"` or `"gloo"`; None to let `Trainer` or Accelerate choose.

    Example:
        @sky.integrations.transformers
        def train(): ...
    """
    return decorator(function, lambda: prepared(instance_info(), backend))


@contextmanager
def prepared(info: InstanceInfo, backend: str | None) -> Iterator[None]:
    """Set the variables if there are several workers; with a backend, join the process group."""
    if not together(info):
        alone(info)
        yield
        return
    from torch import cuda

    set_world(info, on_cpu=backend == "gloo" or not cuda.is_available())
    with _torch_world.around_gang(info, _torch_world.TIMEOUT) if backend is None else joined(info, backend):
        yield


def alone(info: InstanceInfo) -> None:
    """In a task on a single worker, let `Trainer` and Accelerate use this worker's accelerator.

    A worker sees all accelerators of its node. Without variables of a world, `Trainer` computes on
    all accelerators that it sees, with `DataParallel`, and Accelerate on the first one. So the task
    gets a world of one rank, whose `LOCAL_RANK` is this worker's accelerator. Its process group
    uses no network.

    Raises:
        RuntimeError: there is no accelerator for this worker.
    """
    if info.workers_per_node == 1 or not info.accelerators:
        return
    from torch import cuda

    if cuda.device_count() < 2:
        return
    index = _torch_world.take_device(info, "nccl")
    world.part()
    set_environment({"RANK": 0, "WORLD_SIZE": 1, "LOCAL_RANK": index, "LOCAL_WORLD_SIZE": 1})
    # Both backends: `Trainer` would choose NCCL, or both if FSDP needs tensors in host memory.
    world.group_of_one("cpu:gloo,cuda:nccl")
