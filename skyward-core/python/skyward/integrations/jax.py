"""`sky.integrations.jax`: join JAX's distributed runtime."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar, overload

from .._libraries import world
from .._sky.cluster import InstanceInfo, instance_info
from . import _jax_world
from ._wrap import decorator, set_environment, together

P = ParamSpec("P")
R = TypeVar("R")


@overload
def jax(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def jax() -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def jax(function: Callable[..., Any] | None = None, /) -> Any:
    """Decorator: join JAX's distributed runtime before the function runs.

    All workers of the pool become processes of one JAX runtime, and `jax.devices()` lists the
    devices of all of them. The decorator does nothing in a pool of one worker, in a task on a
    single worker, or if the runtime was joined before, by a plugin or an earlier call.

    Raises:
        RuntimeError: raised by the decorated function if it cannot join: see the message.
        TimeoutError: raised by the decorated function if some ranks did not come; it names them.

    Example:
        @sky.integrations.jax
        def train(): ...
    """
    return decorator(function, lambda: joined(instance_info()))


@contextmanager
def joined(info: InstanceInfo) -> Iterator[None]:
    """Initialise `jax.distributed` for all workers, if there are several and it was not done.

    Raises:
        RuntimeError: the pool does not know of the world, JAX was used before, the devices cannot
            be divided among the workers, or JAX computes on the CPU although the pool requested
            accelerators.
        TimeoutError: some ranks did not come; the message names them.
    """
    if together(info) and not _jax_world.is_initialized():
        devices = _jax_world.local_devices(info)
        world.join()
        set_environment(_jax_world.variables(info, devices))
        _jax_world.join(info, devices, _jax_world.TIMEOUT)
    yield
