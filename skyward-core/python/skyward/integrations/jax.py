"""JAX's distributed runtime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, overload

from .. import _world
from .._cluster import InstanceInfo, instance_info
from . import _jax_world
from ._wrap import decorator, set_environment, together

P = ParamSpec("P")
R = TypeVar("R")


@overload
def jax(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def jax() -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def jax(function: Callable[..., Any] | None = None, /) -> Any:
    """Join JAX's distributed runtime before the function runs; with or without arguments.

    Nothing happens in a world of one, in a task that this worker runs alone, nor where the runtime was
    joined already (by a plugin, or by an earlier call).
    """

    def prepare() -> None:
        join(instance_info())

    return decorator(function, prepare)


def join(info: InstanceInfo) -> None:
    """Initialise `jax.distributed` for all workers, if there are several and it was not done.

    Raises:
        RuntimeError: the pool does not know of the world, an earlier task has used JAX already, the devices cannot be
            divided among the workers, or JAX computes on the CPU although the pool has asked for accelerators.
        TimeoutError: not all ranks came; names those that did not.
    """
    if not together(info) or _jax_world.is_initialized():
        return
    devices = _jax_world.local_devices(info)
    _world.join()
    set_environment(_jax_world.variables(info, devices))
    _jax_world.join(info, devices, _jax_world.TIMEOUT)
