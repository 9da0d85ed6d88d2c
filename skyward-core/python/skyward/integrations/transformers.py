"""Hugging Face Transformers: what its `Trainer` needs to find the world."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, overload

from .._cluster import InstanceInfo, instance_info
from ._wrap import decorator, together
from .torch import join, set_world

P = ParamSpec("P")
R = TypeVar("R")


@overload
def transformers(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def transformers(*, backend: str | None = None) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def transformers(function: Callable[..., Any] | None = None, /, *, backend: str | None = None) -> Any:
    """Tell `Trainer` and Accelerate of the world before the function runs; with or without arguments.

    They make the process group themselves, because only then do their own timeout and choice of backend hold; where a
    backend is given, the process group is made with it before they look. Without an accelerator their use of the CPU is
    switched on, or every worker would silently train alone. In a task that this worker runs alone they find no world.

    Args:
        function: what to decorate.
        backend: `nccl` or `gloo`; unless given, they choose.
    """

    def prepare() -> None:
        set_up(instance_info(), backend)

    return decorator(function, prepare)


def set_up(info: InstanceInfo, backend: str | None) -> None:
    """Set the variables, if there are several workers; make the process group too where a backend is chosen."""
    if not together(info):
        return
    from torch import cuda

    set_world(info, on_cpu=backend == "gloo" or not cuda.is_available())
    if backend is not None:
        join(info, backend)
