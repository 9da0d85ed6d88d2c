"""JAX's distributed runtime."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, overload

from .. import _world
from .._cluster import InstanceInfo, instance_info
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
    """Initialise `jax.distributed` for all workers, if there are several and it was not done."""
    if not together(info):
        return
    address = f"[{info.head_addr}]" if ":" in info.head_addr else info.head_addr
    coordinator = f"{address}:{info.head_port}"
    _world.join()
    set_environment(
        {
            "JAX_COORDINATOR_ADDRESS": coordinator,
            "JAX_NUM_PROCESSES": info.total_workers,
            "JAX_PROCESS_ID": info.global_worker_index,
        }
    )
    import jax

    if is_initialized(jax):
        return
    # All of them, or JAX looks for a cluster manager and may find another one. Only `None` with detection
    # switched off means all devices of this process.
    jax.distributed.initialize(
        coordinator_address=coordinator,
        num_processes=info.total_workers,
        process_id=info.global_worker_index,
        local_device_ids=_own_devices(info),
        cluster_detection_method="deactivate",
    )


def _own_devices(info: InstanceInfo) -> list[int] | None:
    """This worker's device, where the workers of a node share devices that all of them see."""
    narrowed = "," not in os.environ.get("CUDA_VISIBLE_DEVICES", ",")
    shared = info.workers_per_node > 1 and info.accelerators >= info.workers_per_node
    return [info.worker] if shared and not narrowed else None


def is_initialized(jax: Any) -> bool:
    """Whether `jax.distributed` was initialised in this process."""
    known = getattr(jax.distributed, "is_initialized", None)
    if known is not None:
        return bool(known())
    from jax._src import distributed

    return distributed.global_state.client is not None
