"""The hook that joins the workers into one JAX world before the first task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from skyward import instance_info
from skyward.integrations import _jax_world as world
from skyward.integrations._wrap import environment


@contextmanager
def around_app(config: Mapping[str, Any]) -> Iterator[None]:
    """Initialise `jax.distributed` with every worker of the pool as one process of the world.

    Args:
        config: `timeout`: seconds within which all workers must meet.

    Raises:
        TimeoutError: some ranks did not come to the rendezvous; the message names them.
        RuntimeError: JAX was used before, the devices cannot be divided among the workers, or JAX
            computes on the CPU although the pool requested accelerators.
    """
    info = instance_info()
    if info.total_workers == 1:
        world.check_devices(info)
        yield
        return
    devices = world.local_devices(info)
    with environment(world.variables(info, devices)):
        if world.is_initialized():
            raise RuntimeError(
                "jax.distributed is already initialized, which the jax plugin does itself: remove the other call to "
                "jax.distributed.initialize"
            )
        world.join(info, devices, float(config["timeout"]))
        try:
            yield
        except BaseException:
            # The ranks wait for each other when they leave. A rank that has failed must not: the
            # others may wait for it in a collective, and would never leave.
            world.forget_barrier_at_exit()
            raise
        import jax

        jax.distributed.shutdown()
