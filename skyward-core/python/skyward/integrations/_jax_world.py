"""JAX's distributed runtime, with every worker of the pool as one of its processes."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from .._sky.cluster import InstanceInfo
from ._meet import join_address, meet

TIMEOUT = 240.0
"""Seconds within which all workers must meet. A pool allows hooks more time, so the error here
names the missing ranks.
"""

_LOOK = 120.0
"""Seconds that a process may take to find out on which platform JAX computes."""

_PROXIES = ("http_proxy", "https_proxy", "grpc_proxy", "all_proxy")


def join(info: InstanceInfo, devices: list[int], timeout: float) -> None:
    """Join the runtime, and look for the devices of all ranks.

    Args:
        info: this worker's place.
        devices: this worker's accelerators, as `local_devices` returns them.
        timeout: seconds within which all workers must meet.

    Raises:
        TimeoutError: some ranks did not come to the rendezvous; the message names them.
        RuntimeError: JAX was used before, or computes on the CPU although there are accelerators.
    """
    import jax

    refuse_late(info)
    check_devices(info)
    deadline = time.monotonic() + timeout
    meet(info, timeout, deadline)
    address = join_address(info.head_addr, info.head_port)
    if not info.accelerators:
        _bind_gloo(info.addr)
    with _kept_signals():
        jax.distributed.initialize(
            coordinator_address=address,
            num_processes=info.total_workers,
            process_id=info.global_worker_index,
            # Never None: JAX would read the missing values from Slurm, MPI and others.
            local_device_ids=devices,
            coordinator_bind_address=address,
            initialization_timeout=max(10, round(deadline - time.monotonic())),
        )
        # The first use of JAX waits for the first use on all ranks, which a task on one worker has not.
        jax.devices()


def variables(info: InstanceInfo, devices: list[int]) -> dict[str, str]:
    """Return the environment variables through which JAX and its users find the world."""
    variables = {
        "JAX_COORDINATOR_ADDRESS": join_address(info.head_addr, info.head_port),
        "JAX_NUM_PROCESSES": str(info.total_workers),
        "JAX_PROCESS_ID": str(info.global_worker_index),
        "JAX_LOCAL_DEVICE_COUNT": str(len(devices)),
    }
    if not info.accelerators and "JAX_CPU_COLLECTIVES_IMPLEMENTATION" not in os.environ:
        variables["JAX_CPU_COLLECTIVES_IMPLEMENTATION"] = "gloo"
    if not any(os.environ.get(name) or os.environ.get(name.upper()) for name in _PROXIES):
        return variables
    # The coordination service uses gRPC, which would connect to the peers through the proxy.
    peers = list(dict.fromkeys([info.head_addr, *(peer.addr for peer in info.peers)]))
    for name in ("no_proxy", "NO_PROXY"):
        known = [part for part in os.environ.get(name, "").split(",") if part]
        variables[name] = ",".join(known + [addr for addr in peers if addr not in known])
    return variables


def local_devices(info: InstanceInfo) -> list[int]:
    """Return this worker's accelerators, as indices into the devices that this process sees."""
    if not info.accelerators or _is_meant_for_cpu():
        return [0]
    share, rest = divmod(info.accelerators, info.workers_per_node)
    if rest or not share:
        raise RuntimeError(
            f"{info.workers_per_node} workers cannot share the {info.accelerators} accelerators of a node evenly"
        )
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    visible = info.accelerators if seen is None else len([part for part in seen.split(",") if part.strip()])
    if visible == info.accelerators:
        return list(range(info.worker * share, (info.worker + 1) * share))
    if visible == share or (info.workers_per_node == 1 and visible):
        return list(range(visible))
    raise RuntimeError(
        f"CUDA_VISIBLE_DEVICES={seen} shows {visible} devices to worker {info.worker}, which should see its own "
        f"{share} or all {info.accelerators} of the node"
    )


def check_devices(info: InstanceInfo) -> None:
    """Check that JAX computes on the accelerators that the pool requested.

    If JAX finds no driver, or was built without support for the accelerator, it uses the CPU
    without an error, and a training would take a hundred times as long. `JAX_PLATFORMS=cpu` in the
    image turns this check off. The check runs in a process of its own, because JAX can join a world
    only before its first use.

    Raises:
        RuntimeError: JAX computes on the CPU.
    """
    if not info.accelerators or _is_meant_for_cpu() or _platform() != "cpu":
        return
    import jax

    kind = info.accelerator.kind if info.accelerator is not None else "accelerators"
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    shown = "" if seen is None else f" (CUDA_VISIBLE_DEVICES is {seen!r})"
    raise RuntimeError(
        f"JAX {jax.__version__} computes on the CPU of node {info.node}, and the pool has asked for {kind} "
        f"({info.accelerators} on each node): JAX finds none{shown}. The driver is missing or too old for the "
        "installed build, or the build is for CPUs: choose a build with `plugins::jax().cuda(…)`. To compute on CPUs, "
        "leave `.accelerator(…)` out, or set JAX_PLATFORMS=cpu in the image"
    )


def _platform() -> str | None:
    """Return the platform of JAX in a process like this one; None if it cannot be found out."""
    look = "import jax; print(); print(jax.default_backend())"
    environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    try:
        answer = subprocess.run(
            [sys.executable, "-c", look],
            check=False,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_LOOK,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    lines = answer.stdout.decode(errors="replace").splitlines()
    return lines[-1] if answer.returncode == 0 and lines else None


def _is_meant_for_cpu() -> bool:
    return os.environ.get("JAX_PLATFORMS") == "cpu"


def refuse_late(info: InstanceInfo) -> None:
    """Refuse to join if JAX was used before: joining would fail, and the other ranks would wait.

    Raises:
        RuntimeError: JAX was used before.
    """
    bridge = sys.modules.get("jax._src.xla_bridge")
    if bridge is not None and getattr(bridge, "backends_are_initialized", lambda: False)():
        raise RuntimeError(
            f"rank {info.global_worker_index} has used JAX already, in a task on a single worker or while a file was "
            "imported, but JAX can join a world only before its first use: add `plugins::jax()` to the pool, which "
            "joins before the first task"
        )


def is_initialized() -> bool:
    """Return whether `jax.distributed` is initialised in this process."""
    import jax

    known = getattr(jax.distributed, "is_initialized", None)
    if known is not None:
        return bool(known())
    from jax._src import distributed

    return distributed.global_state.client is not None


def forget_barrier_at_exit() -> None:
    """Stop JAX from leaving the world when the interpreter exits."""
    with suppress(ImportError, AttributeError):
        from jax._src import api

        atexit.unregister(api.clean_up)


def _bind_gloo(addr: str) -> None:
    """Make gloo use this node's address.

    By default gloo uses the address of the host name: often a loopback address that no peer can
    reach, or none at all. JAX has no option for it.
    """
    with suppress(ImportError, AttributeError):
        from jax._src import xla_bridge

        library = xla_bridge._jax
        make = library.make_gloo_tcp_collectives

        def make_here(**arguments: Any) -> Any:
            library.make_gloo_tcp_collectives = make
            return make(**{"hostname": addr, **arguments})

        library.make_gloo_tcp_collectives = make_here


@contextmanager
def _kept_signals() -> Iterator[None]:
    """Restore the worker's signal handlers: JAX replaces SIGTERM's without Python's knowledge."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            if handler is not None:
                signal.signal(number, handler)
